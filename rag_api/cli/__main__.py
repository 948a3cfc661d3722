"""`python -m rag_api.cli` is `graft`."""

from rag_api.cli import main

main()
