"""Chat messages and a tokenizer in, prompt ids out: the template as shipped, contents as text.

The template is rendered once with sentinels in place of the contents, so no content ever runs
through it or opens a turn (E11). Blanks around a content are kept or dropped as the template does.
What a template does by looking into a content (Qwen3 folds old thoughts) it cannot do here.
Knows nothing of models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import TemplateError
from tokenizers import Encoding
from transformers import PreTrainedTokenizerFast

from backbone.spans import PlainTokenizer, without_surrogates
from index.errors import InvalidInput, ModelError

ROLES = ("system", "user", "assistant", "tool")
_SENTINEL = "\ue0f0%d\ue0f1"
_SEARCH = re.compile("(\\s*)\ue0f0(\\d+)\ue0f1(\\s*)")
_PAD = " \n "


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a rendered prompt: written by the template, or somebody's content."""

    text: str
    is_content: bool


class ChatTemplate:
    """Turns messages into ids with a tokenizer's own chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, plain: PlainTokenizer) -> None:
        self._tokenizer = tokenizer
        self._plain = plain

    @property
    def is_there(self) -> bool:
        """Say whether the model ships a template."""
        return bool(self._tokenizer.chat_template)

    def encode(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Give the prompt's ids; equal to the template's usual ids where no content holds a marker.

        Raises InvalidInput for an unknown role or a conversation that the template refuses, and
        ModelError where the model ships no template.
        """
        pieces = self.render(messages, add_generation_prompt=add_generation_prompt)
        whole = self._encode_whole(pieces)
        return self._encode_apart(pieces) if whole is None else whole

    def render(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[Piece]:
        """Give the prompt as alternating stretches of the template and of contents."""
        if not self.is_there:
            raise ModelError(
                "expected a model with a chat template, this one ships none (a base model); "
                "use it for completions or choose an instruct model"
            )
        contents = [_checked(message) for message in messages]
        marked = [
            {**message, "content": f"{_PAD}{_SENTINEL % i}{_PAD}" if contents[i] else ""}
            for i, message in enumerate(messages)
        ]
        try:
            text = self._tokenizer.apply_chat_template(
                marked, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the model's chat template refuses this conversation: {error}", param="messages"
            ) from error
        return _split(text, contents)

    def _encode_whole(self, pieces: Sequence[Piece]) -> list[int] | None:
        """Encode in one call, as everybody does; None where a content made a marker."""
        text = without_surrogates("".join(piece.text for piece in pieces))
        encoding: Encoding = self._tokenizer.backend_tokenizer.encode(
            text, add_special_tokens=False
        )
        markers = set(self._plain.markers.values())
        found = [s for i, s in zip(encoding.ids, encoding.offsets, strict=True) if i in markers]
        wanted = _marker_spans(pieces, self._plain)
        return encoding.ids if [start for start, _ in found] == wanted else None

    def _encode_apart(self, pieces: Sequence[Piece]) -> list[int]:
        """Encode the stretches between the template's markers as plain text, each as a whole."""
        ids: list[int] = []
        text = ""
        for piece in pieces:
            rest = piece.text
            while not piece.is_content and (match := self._plain.find_marker(rest)):
                ids += self._plain.encode(text + rest[: match.start()])
                ids.append(self._plain.markers[match.group()])
                text, rest = "", rest[match.end() :]
            text += rest
        return ids + self._plain.encode(text)


def _checked(message: Mapping[str, str]) -> str:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise InvalidInput(f"expected a role of {ROLES}, came {role!r}", param="messages")
    if not isinstance(content, str):
        raise InvalidInput(
            f"expected text as the content of a message, came {type(content).__name__}",
            param="messages",
        )
    return content


def _split(text: str, contents: Sequence[str]) -> list[Piece]:
    """Put the contents back in their places, stripped on the sides where the template strips."""
    pieces: list[Piece] = []
    last = 0
    for match in _SEARCH.finditer(text):
        before, number, after = match.groups()
        content = contents[int(number)]
        if before.endswith(_PAD):
            before = before[: -len(_PAD)]
        else:
            content = content.lstrip()
        if after.startswith(_PAD):
            after = after[len(_PAD) :]
        else:
            content = content.rstrip()
        pieces.append(Piece(text[last : match.start()] + before, is_content=False))
        pieces.append(Piece(content, is_content=True))
        last = match.end() - len(after)
    pieces.append(Piece(text[last:], is_content=False))
    return pieces


def _marker_spans(pieces: Sequence[Piece], plain: PlainTokenizer) -> list[int]:
    """List where the template's own markers begin, in code points of the joined text."""
    starts: list[int] = []
    position = 0
    for piece in pieces:
        if not piece.is_content:
            starts += [position + at for at in plain.marker_starts(piece.text)]
        position += len(piece.text)
    return starts
