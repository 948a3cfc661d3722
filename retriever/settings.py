"""What a caller may ask of a search, checked: the knobs of retrieval in one frozen record.

Knows nothing of stores or models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from index.errors import InvalidInput
from index.records import AttributeFilter

Mode = Literal["hybrid", "dense", "lexical"]


@dataclass(frozen=True, slots=True)
class RetrievalSettings:
    """How to search. Every threshold is a lower bound on its own kind of score; None means none.

    `min_dense` bounds inner products of unit vectors, `min_lexical` BM25 (greater is better),
    `min_rerank` whatever the reranker gives. 0.0 is a bound like any other, and so is a negative
    number. Each bound cuts its own list: in hybrid mode a chunk that one list drops may still
    come in by the other, and then carries only the other's score.
    """

    k: int = 5
    candidates: int = 50
    """How many hits each list gives to the fusion."""
    mode: Mode = "hybrid"
    rrf_k: int = 2
    """Small, so that first places count: chosen on XQuAD es and CMRC; see docs/lab-log.md."""
    dense_weight: float = 0.4
    """The dense list's share in the fusion; the lexical list has the rest."""
    min_dense: float | None = None
    min_lexical: float | None = None
    min_rerank: float | None = None
    mmr_lambda: float | None = None
    """1 ranks by relevance alone, 0 by novelty alone; None leaves MMR out."""
    where: AttributeFilter | None = None
    rerank: bool = False
    rerank_depth: int = 20
    """How many of the best candidates the reranker reads."""

    def __post_init__(self) -> None:
        for name in ("k", "candidates", "rrf_k", "rerank_depth"):
            if getattr(self, name) < 1:
                raise InvalidInput(
                    f"{name} must be at least 1; got {getattr(self, name)!r}", param=name
                )
        if self.mode not in get_args(Mode):
            raise InvalidInput(
                f"mode must be one of {', '.join(get_args(Mode))}; got {self.mode!r}", param="mode"
            )
        for name in ("dense_weight", "mmr_lambda"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise InvalidInput(f"{name} must be between 0 and 1; got {value!r}", param=name)
        for name in ("min_dense", "min_lexical", "min_rerank"):
            value = getattr(self, name)
            if value is not None and math.isnan(value):
                raise InvalidInput(f"{name} must be a number; got nan", param=name)
