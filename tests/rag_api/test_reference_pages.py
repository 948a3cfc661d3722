"""The reference pages are what the code says today."""

from __future__ import annotations

import pytest

from rag_api import docs


@pytest.mark.parametrize("name", sorted(docs.PAGES))
def test_the_page_is_what_the_code_says(name: str) -> None:
    path = docs.FOLDER / name
    assert path.read_text(encoding="utf-8") == docs.PAGES[name](), "run `python -m rag_api.docs`"


def test_the_pages_name_what_users_rely_on() -> None:
    api, cli = (docs.PAGES[name]() for name in ("api.md", "cli.md"))
    for route in ("POST /v1/chat/completions", "POST /v1/vector_stores/{store_id}/search"):
        assert route in api
    for command in ("graft ingest", "graft ask", "graft memory build", "graft models pull"):
        assert f"`{command}`" in cli
