"""What a caller asks of the engine and what it gets back: request, token event, completion.

Knows nothing of models, caches or threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from decoding.protocols import Shaper

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Source:
    """A span of a document that carried a part of one emitted token's probability.

    `share` is in (0, 1]: the part of the token's final probability that came from this span.
    `[start, end)` are code points into the text of that version.
    """

    document: str
    version: str
    start: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class Request:
    """One generation. Neutral values (penalties 0 or 1, top_k 0, top_p 1 …) change nothing.

    `temperature` 0 is greedy. `repetition_penalty` sees prompt and output, `presence_penalty` and
    `frequency_penalty` see the output only. `logprobs` is the number of alternatives to report
    for each token (None or 0: none). `stop` strings end the text and are removed from it;
    `stop_ids` end it as the model's own end tokens do.
    """

    prompt: tuple[int, ...]
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    logprobs: int | None = None
    shapers: tuple[Shaper, ...] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One emitted token, in order; the texts of all events joined are the completion's text.

    `text` is empty while a character is not whole yet (the token that completes it carries it),
    for an end token, and for what a stop string removed. Events wait until no stop string can
    begin in them. `logprob` and `top` (id, log-probability; greatest first) are natural logs of
    the target before the warp stage, so they do not depend on temperature or truncation.
    """

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    provenance: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; the end token that finished a completion counts."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds waiting in the queue, reading the prompt, and writing the answer."""

    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished generation: one event for each of `ids` (the end token included)."""

    text: str
    ids: tuple[int, ...]
    finish_reason: FinishReason
    tokens: tuple[TokenEvent, ...]
    usage: Usage
    timings: Timings = Timings()
