"""The command line `graft`: the same services as the HTTP API, for a person at a terminal."""

from __future__ import annotations

import sys

from rag_api.cli import asking, caring, ingesting, managing, serving
from rag_api.cli.base import app, run

__all__ = ["app", "asking", "caring", "ingesting", "main", "managing", "serving"]


def main() -> None:
    """Run `graft`."""
    sys.exit(run())
