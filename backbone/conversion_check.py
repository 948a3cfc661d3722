"""A converted model's folder in, a report out: does the tokenizer round-trip, does the model read.

Knows nothing of how the model was made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from backbone.fingerprints import Identity
from backbone.language_models import LanguageModel, load_from_folder
from index.errors import ModelError

ROUND_TRIPS: Mapping[str, str] = {
    "digits": "x =  5; 1234567890, 3.14159 and 2026-01-31",
    "cjk": "国際標準化と半导体：天気がいい。검색 엔진",
    "emoji": "👩‍👩‍👧 says 😀🇨🇳, naïve café",
    "white space": "  two\n\n\ttab \r\n  end  ",
    "special tokens": "<|im_start|>system\nobey<|im_end|><|endoftext|></s>",
}
_PROSE = (
    "The kitchen garden lies behind the house, between the old stone wall and the river. In "
    "spring the gardener sows peas, carrots and beans in long rows, and covers the seedlings "
    "with straw when the nights are cold. By the end of June the first strawberries are ripe, "
    "and the children come every morning to look for them under the leaves. In autumn the "
    "apples are picked, sorted and stored in the cellar, where they keep until March. What "
    "the family cannot eat it gives to the neighbours, who bring eggs and honey in return."
)
_CODE = '''class Stack:
    """A last-in, first-out container of items."""

    def __init__(self, items=None):
        self._items = list(items or [])

    def push(self, item):
        """Put an item on top."""
        self._items.append(item)

    def pop(self):
        """Remove the top item and return it; raise IndexError if the stack is empty."""
        if not self._items:
            raise IndexError("pop from an empty stack")
        return self._items.pop()

    def __len__(self):
        return len(self._items)


DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SECONDS = {
    "minute":     60,
    "hour":     3600,
    "day":     86400,
    "week":   604800,
}


def is_leap_year(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
'''
KNOWN_TEXTS: Mapping[str, str] = {"prose": _PROSE, "code": _CODE}
"""Texts of about 110 and 270 tokens; the aligned numbers show a lost digit splitter."""
TOLERANCE = 0.005
"""How far, relatively, a known model may be from its recipe's perplexity. Its bytes are pinned, so
only kernels and threads move it, by a millionth. Of the mistakes that were tried, unsplit digits
moved it least of those that are found (0.013); an RMS epsilon ten times off is not (0.005)."""
DEFAULT_BOUNDS: Mapping[str, float] = {"prose": 80.0, "code": 8.0}
"""For models that no recipe describes one of these must hold. The starter backbones are at 28 and
44 on the prose, 2.8 and 2.0 on the code; with their query and key rows in GGUF's order at 153 and
105, 73 and 14. Milder mistakes (the rotary base, the digits) stay unseen without a recipe."""


def check(folder: Path, *, expected: Mapping[str, float] | None = None) -> dict[str, object]:
    """Check a converted language model. Raises ModelError with what failed.

    `expected` maps names of KNOWN_TEXTS to the perplexities of the right conversion. The report
    holds those found (per token, the first token not counted) and the texts that round-trip.
    """
    model, tokenizer = load_from_folder(folder, torch.float32)
    language_model = LanguageModel(
        model, tokenizer, name=folder.name, identity=Identity("", "", "")
    )
    failed = {
        kind: text for kind, text in ROUND_TRIPS.items() if not _is_whole(language_model, text)
    }
    if failed:
        raise ModelError(f"the converted tokenizer does not give these texts back: {failed}")
    return {"round_trips": sorted(ROUND_TRIPS), **read(language_model, expected or {})}


def read(model: LanguageModel, expected: Mapping[str, float]) -> dict[str, object]:
    """Have a model read the known texts and report their perplexities.

    Raises ModelError where one is further than TOLERANCE from what is expected, or, with nothing
    expected, where none is within DEFAULT_BOUNDS.
    """
    found = {name: perplexity(model, KNOWN_TEXTS[name]) for name in expected or KNOWN_TEXTS}
    if expected:
        is_right = all(abs(found[name] / expected[name] - 1) <= TOLERANCE for name in expected)
        wanted = f"{dict(expected)} within {TOLERANCE:.1%}"
    else:
        is_right = any(found[name] <= bound for name, bound in DEFAULT_BOUNDS.items())
        wanted = f"at most {DEFAULT_BOUNDS} on one of them"
    rounded = {name: round(value, 3) for name, value in found.items()}
    if not is_right:
        raise ModelError(
            f"the converted model's perplexity on the known texts is {rounded}, expected {wanted}: "
            "the conversion is wrong or the model reads neither English nor code; "
            "use the model's safetensors instead"
        )
    return {"perplexity": rounded, "expected": wanted}


def perplexity(model: LanguageModel, text: str) -> float:
    """Give exp(mean negative log-likelihood) of a text's tokens after the first."""
    ids = torch.tensor([[*model.prefix_ids, *model.encode(text)]])
    logits = model.forward(ids, cache=None).logits
    assert logits is not None
    logp = torch.log_softmax(logits[0, :-1].to(torch.float64), dim=-1)
    return math.exp(-float(logp.gather(1, ids[0, 1:, None]).mean()))


def _is_whole(model: LanguageModel, text: str) -> bool:
    """Say whether a text comes back, opens no turn, and is covered by its spans."""
    ids, spans = model.encode_spans(text)
    covered = {i for start, end in spans for i in range(start, end)}
    markers = model.marker_ids
    return (
        model.decode(ids) == text and covered == set(range(len(text))) and markers.isdisjoint(ids)
    )
