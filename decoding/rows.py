"""One request in flight: targets come in, tokens are chosen, committed and turned into events.

Knows nothing of caches, threads or how steps are scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from backbone import LanguageModel
from decoding.detokenizing import Detokenizer
from decoding.protocols import StepView
from decoding.randomness import PosRng
from decoding.records import FinishReason, Request, TokenEvent
from decoding.sampling import shapers_of
from decoding.stopping import Released, StopStrings
from decoding.target import choose, compute, open_shapers, sources_of


class Row:
    """The state of one request between two steps.

    `sequence` is prompt and committed output; `reason` is set once the request is done.
    """

    def __init__(self, request: Request, model: LanguageModel) -> None:
        self.request = request
        self.sequence = list(request.prompt)
        self.reason: FinishReason | None = None
        self._ends = request.stop_ids | (frozenset() if request.ignore_eos else model.eos_ids)
        self._opened = open_shapers([*request.shapers, *shapers_of(request)], request)
        self._rng = PosRng(request.seed)
        self._detokenizer = Detokenizer(model.decode)
        self._stops = StopStrings(request.stop)
        self._waiting: list[TokenEvent] = []

    @property
    def num_output(self) -> int:
        """Count the committed output tokens."""
        return len(self.sequence) - len(self.request.prompt)

    def advance(self, view: StepView, row: int) -> list[TokenEvent]:
        """Choose the next token from a view, commit it, and give the events that may be shown."""
        target = compute(view, row, self._opened)
        position = len(self.sequence)
        token = choose(target.logq[0], self._rng, position)
        for item in self._opened:
            item.state.commit((token,), view, row)
        self.sequence.append(token)
        self._waiting.append(self._event(token, target.logp[0], position))
        return self._show(token)

    def finish(self, reason: FinishReason) -> list[TokenEvent]:
        """End the row here (cancelled); give the events that were held back."""
        self.reason = reason
        return self._flush()

    def _event(self, token: int, logp: Tensor, position: int) -> TokenEvent:
        num_top = min(self.request.logprobs or 0, logp.shape[-1])
        best = logp.topk(num_top)
        top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        sources = sources_of(self._opened, position)
        return TokenEvent(token, "", float(logp[token]), top, sources)

    def _show(self, token: int) -> list[TokenEvent]:
        """Decide whether the row ends with this token, and what may be shown."""
        if token in self._ends:
            return self.finish("stop")
        events: list[TokenEvent] = []
        for text in self._detokenizer.push(token):
            released = self._stops.push(text)
            events += self._fill(released)
            if released.is_stopped:
                self.reason = "stop"
                return events + self._empty()
        if self.num_output == self.request.max_tokens:
            events += self.finish("length")
        return events

    def _flush(self) -> list[TokenEvent]:
        """Settle every open character; a stop string may yet be met in it."""
        events: list[TokenEvent] = []
        for text in self._detokenizer.finish():
            released = self._stops.push(text)
            events += self._fill(released)
            if released.is_stopped:
                self.reason = "stop"
                return events + self._empty()
        return events + self._fill(self._stops.finish()) + self._empty()

    def _fill(self, released: Released) -> list[TokenEvent]:
        """Give the oldest waiting events their texts."""
        num = len(released.texts)
        ready, self._waiting = self._waiting[:num], self._waiting[num:]
        return [_with_text(*pair) for pair in zip(ready, released.texts, strict=True)]

    def _empty(self) -> list[TokenEvent]:
        """Give the waiting events that have no text (an end token, what a stop removed)."""
        ready, self._waiting = self._waiting, []
        return ready


def _with_text(event: TokenEvent, text: str) -> TokenEvent:
    return TokenEvent(event.id, text, event.logprob, event.top, event.provenance)


def joined(events: Sequence[TokenEvent]) -> str:
    """Join the texts of events."""
    return "".join(event.text for event in events)
