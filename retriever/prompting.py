"""A question and passages in, chat messages within a token budget out.

Passages are data: numbered [1]…[n], each between its own tags, and never obeyed by this code.
Turn markers inside them stay plain text because `model.chat` encodes contents as such. Knows
nothing of search or of how the answer is generated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from index.errors import InvalidInput
from index.records import Passage
from retriever import sentences
from retriever.abstention import abstention
from retriever.terms import Language, language_of

Message = Mapping[str, str]


class ChatModel(Protocol):
    """What prompting needs of a backbone: the ids of rendered messages."""

    def chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages for `model.chat`, the passages that are in them, and what had to stay out.

    `numbered[n - 1]` is the passage behind the marker [n]; one that was cut at a sentence's end
    carries only the words that the prompt holds. `num_dropped` passages and `num_dropped_turns`
    of history did not fit.
    """

    messages: tuple[Message, ...]
    numbered: tuple[Passage, ...]
    num_tokens: int
    num_dropped: int = 0
    num_cut: int = 0
    num_dropped_turns: int = 0


_INSTRUCTIONS: dict[Language, str] = {
    "en": (
        "Answer the question shortly, using only the passages. "
        "After the answer, write the number of the passage in brackets, like [1]."
    ),
    "zh": "只根据下面的段落，简短地回答问题，并在答案后用方括号写出所依据段落的编号，例如[1]。",
}
_ABSTAIN: dict[Language, str] = {
    "en": " If the passages do not answer it, write only: ",
    "zh": "如果段落没有回答这个问题，只写：",
}
_QUESTION: dict[Language, str] = {"en": "Question: ", "zh": "问题："}


def build_prompt(
    question: str,
    passages: Sequence[Passage],
    *,
    model: ChatModel,
    budget_tokens: int,
    history: Sequence[Message] = (),
    abstain: bool = False,
    shown: Mapping[int, str] | None = None,
) -> Prompt:
    """Number passages into a prompt of at most `budget_tokens` tokens, template included.

    `shown` gives, by chunk id, the words to print instead of a passage's whole text (excerpts
    made by `condense`); the passage stays whole in `numbered`, and is dropped rather than cut.
    Passages come in the order given, best first. One that does not fit is cut at a sentence's end
    if at least a third of it fits, and is dropped otherwise; nothing after a passage that did not
    fit is tried, so that a worse passage never displaces a better one. Older turns of history are
    dropped whole before that, but only while the bare prompt does not fit. Raises InvalidInput
    where not even question and instruction fit.
    """
    if not question.strip():
        raise InvalidInput("expected a question; got an empty one", param="question")
    draft = _Draft(question, [dict(turn) for turn in history], abstain, shown or {}, model)
    fixed = draft.count(())
    while fixed > budget_tokens and draft.turns:
        draft.turns.pop(0)
        fixed = draft.count(())
    if fixed > budget_tokens:
        raise InvalidInput(
            f"the question alone needs {fixed} tokens and the budget is {budget_tokens}; "
            "ask a shorter question or allow more tokens",
            param="budget_tokens",
        )
    numbered, num_cut = _fill(draft, passages, budget_tokens)
    messages = draft.messages(numbered)
    return Prompt(
        messages=messages,
        numbered=tuple(numbered),
        num_tokens=len(model.chat(messages)),
        num_dropped=len(passages) - len(numbered),
        num_cut=num_cut,
        num_dropped_turns=len(history) - len(draft.turns),
    )


@dataclass(slots=True)
class _Draft:
    """A prompt without its passages."""

    question: str
    turns: list[Message]
    abstain: bool
    shown: Mapping[int, str]
    model: ChatModel

    def count(self, passages: Sequence[Passage]) -> int:
        return len(self.model.chat(self.messages(passages)))

    def messages(self, passages: Sequence[Passage]) -> tuple[Message, ...]:
        language = language_of(self.question)
        instruction = _INSTRUCTIONS[language]
        if self.abstain:
            instruction += _ABSTAIN[language] + abstention(self.question)
        data = "\n\n".join(self._block(n, passage) for n, passage in enumerate(passages, start=1))
        asked = _QUESTION[language] + self.question
        content = "\n\n".join(filter(None, (data, instruction, asked)))
        return (*self.turns, {"role": "user", "content": content})

    def _block(self, number: int, passage: Passage) -> str:
        words = self.shown.get(passage.chunk_id, passage.text).strip()
        return "\n".join(filter(None, (f"[{number}] {passage.document}", passage.context, words)))


def _fill(
    draft: _Draft, passages: Sequence[Passage], budget_tokens: int
) -> tuple[list[Passage], int]:
    """Take passages while they fit; give them, and how many were cut (0 or 1)."""
    numbered: list[Passage] = []
    for passage in passages:
        if draft.count([*numbered, passage]) <= budget_tokens:
            numbered.append(passage)
            continue
        if passage.chunk_id in draft.shown:
            break
        cut = _cut_to_fit(
            passage, lambda shorter: draft.count([*numbered, shorter]) <= budget_tokens
        )
        if cut is not None:
            return [*numbered, cut], 1
        break
    return numbered, 0


def _cut_to_fit(passage: Passage, fits: Callable[[Passage], bool]) -> Passage | None:
    ends = [span.end for span in sentences.split(passage.text)][:-1]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(_shortened(passage, ends[middle - 1])):
            low = middle
        else:
            high = middle - 1
    if low == 0 or 3 * ends[low - 1] < len(passage.text):
        return None
    return _shortened(passage, ends[low - 1])


def _shortened(passage: Passage, length: int) -> Passage:
    return dataclasses.replace(passage, text=passage.text[:length], end=passage.start + length)
