"""A question and texts in, a cross-encoder's relevance of each out.

Serves as a reranker of passages and as a final scorer of completions. Knows nothing of stores,
of prompts or of how the model is kept; `backbone` loads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from backbone import CrossEncoderModel, ModelCache, load_cross_encoder
from decoding.protocols import ScorerKind
from decoding.records import Completion
from reward.candidates import texts_of


class CrossEncoderScorer:
    """Relevance by a cross-encoder: raw logits, greater is better, 0 is its own even chance."""

    kind: ScorerKind = "final"

    def __init__(self, model: CrossEncoderModel) -> None:
        self._model = model
        self.name = model.name

    @classmethod
    def load(cls, source: str, cache: ModelCache) -> CrossEncoderScorer:
        """Load the named cross-encoder; raises ModelError or ConfigError where it is missing."""
        return cls(load_cross_encoder(source, cache))

    def score(self, query: str, candidates: Sequence[str] | Sequence[Completion]) -> list[float]:
        """Give one relevance a text, in the order given."""
        return self._model.score(query, texts_of(candidates))
