"""The way out: a question in, tokens with their sources and an answer with checked quotes out.

search → prompt → engine with the token memory → citations checked → result. Collaborators come
from the wiring. Knows nothing of HTTP or of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from index.errors import InvalidInput, NotFound
from index.records import Passage, StoreRecord
from rag_api.services.questions import (
    Answered,
    Mode,
    Piece,
    Question,
    Quote,
    TokenSource,
)

if TYPE_CHECKING:
    from decoding import Completion, Handle, Shaper, TokenEvent
    from rag_api.wiring import Graft
    from retriever import Citation

READS_PASSAGES: frozenset[Mode] = frozenset({"rag", "both", "extractive"})
READS_MEMORY: frozenset[Mode] = frozenset({"knn_lm", "both"})


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is settled before the first token."""

    question: Question
    asked: str
    mode: Mode
    stores: tuple[StoreRecord, ...]
    passages: tuple[Passage, ...] = ()
    """Those that are in the prompt, in the order of their numbers."""
    prompt: tuple[int, ...] = ()
    shapers: tuple[Shaper, ...] = ()
    warnings: tuple[str, ...] = ()


class Answering:
    """One answer on its way: iterate its pieces, then `finish` it; `cancel` from any thread."""

    def __init__(self, graft: Graft, plan: Plan, handle: Handle) -> None:
        self._graft = graft
        self._handle = handle
        self.plan = plan

    @property
    def mode(self) -> Mode:
        """The mode in use, also where the caller left it open."""
        return self.plan.mode

    @property
    def num_passages(self) -> int | None:
        """How many passages a marker can name; None where the prompt shows none."""
        return len(self.plan.passages) if self.plan.mode in READS_PASSAGES else None

    def __iter__(self) -> Iterator[Piece]:
        for event in self._handle:
            yield self._piece(event)

    def cancel(self) -> None:
        """Stop generating."""
        self._handle.cancel()

    def finish(self) -> Answered:
        """Wait for the end, check the citations, give the whole answer."""
        completion = self._handle.result()
        answered = Answered(
            answer=completion.text,
            mode=self.plan.mode,
            tokens=tuple(self._piece(event) for event in completion.tokens),
            passages=self.plan.passages,
            warnings=self.plan.warnings,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.usage.prompt_tokens,
            completion_tokens=completion.usage.completion_tokens,
            timings=_timings(completion),
        )
        return _cited(self._graft, self.plan, answered)

    def _piece(self, event: TokenEvent) -> Piece:
        decode = self._graft.model.decode
        return Piece(
            text=event.text,
            logprob=event.logprob,
            top=tuple((decode([token]), logprob) for token, logprob in event.top),
            sources=tuple(
                TokenSource(s.document, s.start, s.end, s.share) for s in event.provenance
            ),
        )


class Instant:
    """An answer that needed no generation: extractive, or abstaining."""

    def __init__(self, answered: Answered) -> None:
        self._answered = answered

    @property
    def mode(self) -> Mode:
        """The mode in use."""
        return self._answered.mode

    @property
    def num_passages(self) -> int | None:
        """None: every marker is checked already."""
        return None

    def __iter__(self) -> Iterator[Piece]:
        yield Piece(self._answered.answer)

    def cancel(self) -> None:
        """Do nothing: there is nothing to stop."""

    def finish(self) -> Answered:
        """Give the answer."""
        return self._answered


class Answers:
    """Answers questions over one tenant's stores."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft

    def start(self, question: Question) -> Answering | Instant:
        """Search, build the prompt and submit it; what can be refused is refused here."""
        asked = _asked(question)
        stores = tuple(
            self._graft.stores.get(store, tenant=question.tenant)
            for store in dict.fromkeys(question.stores)
        )
        mode = question.mode or self.default_mode(stores)
        if mode != "none" and not stores:
            raise InvalidInput(
                f"mode {mode!r} reads a vector store and none is named", param="retrieval"
            )
        if question.abstain and mode in ("none", "knn_lm"):
            raise InvalidInput(
                f"abstaining is judged by passages, which mode {mode!r} does not read; "
                "use rag, both or extractive",
                param="abstain",
            )
        plan = Plan(question, asked, mode, stores)
        found = self._passages(plan) if mode in READS_PASSAGES else []
        instant = self._instant(plan, found)
        return instant if instant is not None else self._generate(plan, found)

    def ask(self, question: Question) -> Answered:
        """Answer a question and wait for it."""
        return self.start(question).finish()

    def default_mode(self, stores: Sequence[StoreRecord]) -> Mode:
        """`none` without stores, `both` where a token memory exists, else `rag`."""
        if not stores:
            return "none"
        memory = self._graft.memory
        return "both" if any(memory.status(store).num_ready for store in stores) else "rag"

    # ---- before the first token

    def _passages(self, plan: Plan) -> list[Passage]:
        return self._graft.searches.search(
            plan.asked,
            [store.id for store in plan.stores],
            tenant=plan.question.tenant,
            wish=plan.question.search,
        )

    def _instant(self, plan: Plan, found: Sequence[Passage]) -> Instant | None:
        """Answer without generating, where the mode says so or where it is right to abstain."""
        if plan.mode != "extractive" and not plan.question.abstain:
            return None
        from retriever import answer

        result = answer(
            plan.asked,
            found,
            TextReader(self._graft).read,
            abstain=plan.question.abstain,
            embedder=self._graft.embedder_of(plan.stores[0]),
        )
        abstained = not result.citations
        if plan.mode != "extractive" and not abstained:
            return None
        return Instant(
            Answered(
                answer=result.answer,
                mode=plan.mode,
                citations=_quotes(self._graft, result.citations),
                abstained=abstained,
                tokens=(Piece(result.answer),),
                passages=tuple(found),
            )
        )

    def _generate(self, plan: Plan, found: Sequence[Passage]) -> Answering:
        from decoding import Request

        plan = self._with_prompt(plan, found)
        if plan.mode in READS_MEMORY:
            shaper, warnings = self._graft.memory.shaper(
                plan.stores, plan.question.knn, plan.question.search.where
            )
            plan = replace(plan, shapers=(shaper,), warnings=plan.warnings + warnings)
        decoding = plan.question.decoding
        defaults = self._graft.settings.generation
        temperature = decoding.temperature
        request = Request(
            prompt=plan.prompt,
            max_tokens=self._max_tokens(plan.question),
            temperature=defaults.temperature if temperature is None else temperature,
            top_p=decoding.top_p,
            seed=decoding.seed,
            stop=decoding.stop,
            logprobs=decoding.logprobs,
            shapers=plan.shapers,
            presence_penalty=decoding.presence_penalty,
            frequency_penalty=decoding.frequency_penalty,
            logit_bias=decoding.logit_bias,
        )
        return Answering(self._graft, plan, self._graft.engine.submit(request))

    def _with_prompt(self, plan: Plan, found: Sequence[Passage]) -> Plan:
        model = self._graft.model
        budget = model.context_length - self._max_tokens(plan.question)
        if plan.mode not in READS_PASSAGES:
            ids = tuple(model.chat(plan.question.messages))
            if len(ids) > budget:
                raise InvalidInput(
                    f"the conversation has {len(ids)} tokens and {budget} fit beside the answer; "
                    "send fewer, or ask for a shorter answer",
                    param="messages",
                )
            return replace(plan, prompt=ids)
        from retriever import build_prompt

        passages, shown = self._excerpts(plan, found)
        prompt = build_prompt(
            plan.asked,
            passages,
            model=model,
            budget_tokens=budget,
            history=plan.question.messages[:-1],
            abstain=plan.question.abstain,
            shown=shown,
        )
        left_out = len(passages) - len(prompt.numbered)
        warning = f"{left_out} of {len(passages)} passages did not fit into the prompt"
        return replace(
            plan,
            prompt=tuple(model.chat(prompt.messages)),
            passages=tuple(prompt.numbered),
            warnings=(warning,) if left_out else (),
        )

    def _excerpts(
        self, plan: Plan, found: Sequence[Passage]
    ) -> tuple[Sequence[Passage], dict[int, str]]:
        """Choose what the prompt shows: the best sentences, or all where the settings say so."""
        budget = self._graft.settings.generation.excerpt_tokens
        if not budget or not found:
            return found, {}
        from retriever import condense

        model = self._graft.model
        excerpts = condense(
            plan.asked,
            found,
            count_tokens=lambda text: len(model.encode(text)),
            budget_tokens=budget,
            embedder=self._graft.embedder_of(plan.stores[0]),
        )
        shown = {excerpt.passage.chunk_id: excerpt.shown for excerpt in excerpts}
        return [excerpt.passage for excerpt in excerpts], shown

    def _max_tokens(self, question: Question) -> int:
        defaults = self._graft.settings.generation
        wanted = question.decoding.max_tokens
        if wanted is not None and wanted > defaults.max_tokens_cap:
            raise InvalidInput(
                f"max_tokens may be {defaults.max_tokens_cap} here and is {wanted}",
                param="max_tokens",
            )
        return defaults.max_tokens if wanted is None else wanted


class TextReader:
    """Reads the text of a passage's version, each once; a text that is gone reads as empty."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft
        self._texts: dict[tuple[str, str, str], str] = {}

    def read(self, passage: Passage) -> str:
        """Give the text, or nothing where the version was deleted or replaced meanwhile."""
        key = (passage.store_id, passage.document, passage.version)
        if key not in self._texts:
            self._texts[key] = self._current(passage)
        return self._texts[key]

    def _current(self, passage: Passage) -> str:
        try:
            document = self._graft.index.get_document(passage.store_id, passage.document)
        except NotFound:
            return ""
        if document.version != passage.version:
            return ""
        return self._graft.index.text_of(document)


def _asked(question: Question) -> str:
    if not question.messages or question.messages[-1].get("role") != "user":
        raise InvalidInput("the last message must be the user's", param="messages")
    asked = question.messages[-1].get("content", "")
    if not asked.strip():
        raise InvalidInput("the question is empty", param="messages")
    return asked


def _cited(graft: Graft, plan: Plan, answered: Answered) -> Answered:
    if plan.mode not in READS_PASSAGES:
        return answered
    from retriever import is_abstention, resolve

    cited = resolve(answered.answer, plan.passages, TextReader(graft).read, question=plan.asked)
    return replace(
        answered,
        answer=cited.answer,
        citations=_quotes(graft, cited.citations),
        dropped=cited.dropped + cited.unsupported,
        abstained=is_abstention(cited.answer),
    )


def _quotes(graft: Graft, found: Sequence[Citation]) -> tuple[Quote, ...]:
    """Keep the citations that the server could check, with the files that they come from."""
    return tuple(_quote(graft, citation) for citation in found if citation.verified)


def _quote(graft: Graft, citation: Citation) -> Quote:
    """Complete a citation; its page is the quote's own, where a chunk runs over several."""
    document = graft.index.find_document(citation.store_id, citation.document)
    return Quote(
        number=citation.number,
        document=citation.document,
        version=citation.version,
        store_id=citation.store_id,
        file_id=document.file_id if document is not None else None,
        start=citation.start,
        end=citation.end,
        quote=citation.quote,
        verified=citation.verified,
        origin=citation.origin,
        page=document.page_at(citation.start) if document is not None else citation.page,
        headings=citation.headings,
        answer_start=citation.answer_span.start,
        answer_end=citation.answer_span.end,
    )


def _timings(completion: Completion) -> dict[str, float]:
    timings = completion.timings
    return {
        "queued_s": timings.queued_s,
        "prefill_s": timings.prefill_s,
        "decode_s": timings.decode_s,
    }


__all__ = ["Answering", "Answers", "Instant", "TextReader"]
