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
) -> Prompt:
    """Number passages into a prompt of at most `budget_tokens` tokens, template included.

    Passages come in the order given, best first. One that does not fit is cut at a sentence's end
    if at least a third of it fits, and is dropped otherwise; nothing after a passage that did not
    fit is tried, so that a worse passage never displaces a better one. Older turns of history are
    dropped whole before that, but only while the bare prompt does not fit. Raises InvalidInput
    where not even question and instruction fit.
    """
    if not question.strip():
        raise InvalidInput("expected a question; got an empty one", param="question")
    turns = [dict(turn) for turn in history]
    fixed = _count(question, (), turns, abstain, model)
    while fixed > budget_tokens and turns:
        turns.pop(0)
        fixed = _count(question, (), turns, abstain, model)
    if fixed > budget_tokens:
        raise InvalidInput(
            f"the question alone needs {fixed} tokens and the budget is {budget_tokens}; "
            "ask a shorter question or allow more tokens",
            param="budget_tokens",
        )
    numbered, num_cut = _fill(question, passages, turns, abstain, model, budget_tokens)
    messages = _messages(question, numbered, turns, abstain)
    return Prompt(
        messages=messages,
        numbered=tuple(numbered),
        num_tokens=len(model.chat(messages)),
        num_dropped=len(passages) - len(numbered),
        num_cut=num_cut,
        num_dropped_turns=len(history) - len(turns),
    )


def _fill(
    question: str,
    passages: Sequence[Passage],
    turns: Sequence[Message],
    abstain: bool,
    model: ChatModel,
    budget_tokens: int,
) -> tuple[list[Passage], int]:
    """Take passages while they fit; give them, and how many were cut (0 or 1)."""
    numbered: list[Passage] = []
    for passage in passages:
        if _count(question, [*numbered, passage], turns, abstain, model) <= budget_tokens:
            numbered.append(passage)
            continue
        cut = _cut_to_fit(
            passage,
            lambda shorter: (
                _count(question, [*numbered, shorter], turns, abstain, model) <= budget_tokens
            ),
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


def _count(
    question: str,
    passages: Sequence[Passage],
    turns: Sequence[Message],
    abstain: bool,
    model: ChatModel,
) -> int:
    return len(model.chat(_messages(question, passages, turns, abstain)))


def _messages(
    question: str, passages: Sequence[Passage], turns: Sequence[Message], abstain: bool
) -> tuple[Message, ...]:
    language = language_of(question)
    instruction = _INSTRUCTIONS[language]
    if abstain:
        instruction += _ABSTAIN[language] + abstention(question)
    data = "\n\n".join(_block(number, p) for number, p in enumerate(passages, start=1))
    content = "\n\n".join(filter(None, (data, instruction, _QUESTION[language] + question)))
    return (*turns, {"role": "user", "content": content})


def _block(number: int, passage: Passage) -> str:
    head = f"[{number}] {passage.document}"
    return "\n".join(filter(None, (head, passage.context, passage.text.strip())))
