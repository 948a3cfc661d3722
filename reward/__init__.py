"""Candidates in, values and choices out: scorers and selectors; see docs/."""

from reward.cross_encoder import CrossEncoderScorer
from reward.likelihood import MeanLogProb, QueryLikelihoodScorer
from reward.selection import BestOfN, Selection, Selector, WeightedBestOfN, best_of_n

__all__ = [
    "BestOfN",
    "CrossEncoderScorer",
    "MeanLogProb",
    "QueryLikelihoodScorer",
    "Selection",
    "Selector",
    "WeightedBestOfN",
    "best_of_n",
]
