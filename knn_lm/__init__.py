"""Token memory: a document's tokens and keys, exact neighbours, and their part in the target."""

from knn_lm.building import build_arrays
from knn_lm.evaluating import Perplexity, perplexity
from knn_lm.memory import Neighbours, TokenMemory
from knn_lm.shaping import KnnSettings, KnnShaper

__all__ = [
    "KnnSettings",
    "KnnShaper",
    "Neighbours",
    "Perplexity",
    "TokenMemory",
    "build_arrays",
    "perplexity",
]
