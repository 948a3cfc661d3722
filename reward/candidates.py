"""Candidates in, their words out: scorers read plain texts and completions alike."""

from __future__ import annotations

from collections.abc import Sequence

from decoding.records import Completion


def texts_of(candidates: Sequence[str] | Sequence[Completion]) -> list[str]:
    """Give the words of each candidate."""
    return [c.text if isinstance(c, Completion) else c for c in candidates]
