"""Lists in OpenAI's shape, cut into pages.

JSON objects with ids go in, one page of them comes out. Knows nothing of what is listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from index.errors import NotFound

JSON = dict[str, Any]
_OUR_ID = re.compile(r"(?:vs|file|job|vsfb_job)[-_][0-9a-f]{8,}")


def page(data: Sequence[JSON], *, has_more: bool = False) -> JSON:
    """Wrap a list as OpenAI does."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def names_gone(after: str) -> bool:
    """Say whether an `after` that is not in a list has the form of an id: its item was deleted."""
    return _OUR_ID.fullmatch(after) is not None


def cut(
    items: Sequence[JSON],
    *,
    after: str | None,
    limit: int,
    order: str,
    keep: Callable[[JSON], bool] = lambda _item: True,
) -> JSON:
    """Page through what is to be kept of a list that is in memory, oldest first as given.

    `after` may be an item that is not kept any more. Where it is an id whose item is gone, the
    list starts over: that is what deleting page by page needs. Raises NotFound for other words.
    """
    ordered = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        ids = [item["id"] for item in ordered]
        if after in ids:
            ordered = ordered[ids.index(after) + 1 :]
        elif not names_gone(after):
            raise NotFound(f"'after' names {after!r}, which is not in this list; start over")
    kept = [item for item in ordered if keep(item)]
    return page(kept[:limit], has_more=limit < len(kept))
