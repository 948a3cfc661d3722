"""A question and texts in, a cross-encoder's relevance of each out.

Serves as a reranker of passages and as a final scorer of completions. Knows nothing of stores,
of prompts or of how the model is kept; `backbone` loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from decoding.protocols import ScorerKind
from decoding.records import Completion
from reward.candidates import texts_of

if TYPE_CHECKING:
    from backbone import CrossEncoderModel, ModelCache


class CrossEncoderScorer:
    """Relevance by a cross-encoder; the scale is the model's own, greater is better."""

    kind: ScorerKind = "final"

    def __init__(self, model: CrossEncoderModel) -> None:
        self._model = model
        self.name = model.name

    @classmethod
    def load(cls, source: str, cache: ModelCache) -> CrossEncoderScorer:
        """Load the named cross-encoder; raises ModelError or ConfigError where it is missing."""
        from backbone import load_cross_encoder

        return cls(load_cross_encoder(source, cache))

    def score(self, query: str, candidates: Sequence[str] | Sequence[Completion]) -> list[float]:
        """Give one relevance a text, in the order given."""
        texts = texts_of(candidates)
        if not texts:
            return []
        return [float(value) for value in self._model.score([(query, text) for text in texts])]
