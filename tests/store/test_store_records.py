"""Small arithmetic of the records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from index.records import DocumentRecord

PAGED = DocumentRecord(
    1, "vs_1", "a.pdf", "v", "t", "plain", "application/pdf", 9, 30, 1, (0, 10, 20),
    1.0, (), {}, None, (), 0,
)  # fmt: skip


@pytest.mark.parametrize(("offset", "page"), [(0, 1), (9, 1), (10, 2), (19, 2), (20, 3), (29, 3)])
def test_a_quote_is_on_the_page_where_it_starts(offset: int, page: int) -> None:
    assert PAGED.page_at(offset) == page
    assert replace(PAGED, page_starts=()).page_at(offset) is None
