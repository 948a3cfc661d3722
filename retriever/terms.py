"""Text in, comparable terms out: stemmed words, and character bigrams where words have no spaces.

Used to judge how well one sentence supports or answers another. Knows nothing of passages, of
models or of the lexical index (which has its own tokenizer).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

Language = Literal["en", "zh"]

_UNSEGMENTED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3007"
)
_RUN = re.compile(rf"[{_UNSEGMENTED}]+|[^\W_{_UNSEGMENTED}]+")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_IS_UNSEGMENTED = re.compile(rf"[{_UNSEGMENTED}]")
_LETTER = re.compile(r"[^\W\d_]")

_ENGLISH = """
a about after all also am an and any are as at be been before being between both but by can could
did do does doing done during each for from had has have having he her here him his how i if in
into is it its just like many may me might more most much must my no nor not of on once one only or
other our out over own s same she should so some such t than that the their them then there these
they this those through to too under until up upon use used using very was we were what when where
which while who whom whose why will with would you your according called name named type kind
"""
_CHINESE = """
什么 哪个 哪些 哪里 哪种 哪一 多少 如何 怎么 怎样 为什 为何 是否 可以 以及 或者 一个 这个 这些 那些
他们 它们 我们 是什 么时 时候 是谁 有哪 有多 几个 个什 么是 叫什 名字 关于 根据 由于 因为 所以 但是
并且 而且
"""
_STOP_WORDS = frozenset(_ENGLISH.split())
_STOP_GRAMS = frozenset(_CHINESE.split())
_ZH_BREAKS = re.compile("[的了吗呢吧着过之与和及或是在被把对于]")


def terms(text: str) -> list[str]:
    """Give the content terms of `text` in order, repeats kept.

    Words are case-folded and lightly stemmed, English function words dropped; runs of an
    unsegmented script become overlapping bigrams, cut at frequent Chinese function characters.

    >>> terms("The limits of 10 chunks")
    ['limit', '10', 'chunk']
    >>> terms("半导体的价格")
    ['半导', '导体', '价格']
    """
    found: list[str] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _IS_UNSEGMENTED.match(run):
            found.extend(_bigrams(run))
        elif run not in _STOP_WORDS:
            found.append(stem(run))
    return found


def _bigrams(run: str) -> list[str]:
    grams: list[str] = []
    for part in _ZH_BREAKS.split(run):
        if len(part) == 1:
            grams.append(part)
        grams.extend(part[i : i + 2] for i in range(len(part) - 1))
    return [gram for gram in grams if gram not in _STOP_GRAMS]


def stem(word: str) -> str:
    """Cut the commonest English endings, so that `limits`, `limited` and `limit` meet.

    >>> [stem(w) for w in ("limits", "limited", "running", "policies", "bus")]
    ['limit', 'limit', 'run', 'policy', 'bus']
    """
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, shortest in (("ing", 6), ("ed", 5)):
        if word.endswith(ending) and len(word) >= shortest:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def language_of(text: str) -> Language:
    """Say `zh` where at least a third of the letters are Han characters, else `en`."""
    num_han = len(_HAN.findall(text))
    return "zh" if num_han and 3 * num_han >= len(_LETTER.findall(text)) else "en"


def same_script(left: str, right: str) -> bool:
    """Tell whether two texts can share terms: both, or neither, hold an unsegmented script."""
    return bool(_IS_UNSEGMENTED.search(left)) == bool(_IS_UNSEGMENTED.search(right))
