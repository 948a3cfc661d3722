"""Files go in, chunks of the store's documents come out: parsing, chunking, embedding, committing.

Names are loaded on first use: the parser's child process imports this package and must stay small.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingestion.chunking import ChunkSettings, split
    from ingestion.parsing import ParsedFile, ParseLimits, Parser, parse
    from ingestion.pipeline import Pipeline
    from ingestion.sources import Outcome, SourceFile
    from ingestion.tokenmap import Tokenizing
    from ingestion.walking import Skipped, Walk, walk

_HOMES = {
    "ChunkSettings": "chunking",
    "Outcome": "sources",
    "ParseLimits": "parsing",
    "ParsedFile": "parsing",
    "Parser": "parsing",
    "Pipeline": "pipeline",
    "Skipped": "walking",
    "SourceFile": "sources",
    "Tokenizing": "tokenmap",
    "Walk": "walking",
    "parse": "parsing",
    "split": "chunking",
    "walk": "walking",
}

__all__ = [
    "ChunkSettings",
    "Outcome",
    "ParseLimits",
    "ParsedFile",
    "Parser",
    "Pipeline",
    "Skipped",
    "SourceFile",
    "Tokenizing",
    "Walk",
    "parse",
    "split",
    "walk",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ingestion.{_HOMES[name]}"), name)
