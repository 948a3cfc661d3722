"""Attribute filters (OpenAI's shape) go in, a SQL condition with bound values comes out.

A missing key equals nothing: `eq`, `in` and the ranges do not match it, `ne` and `nin` do.
Numbers compare with numbers, text with text (by code point), booleans with booleans; 1 is not
true. Knows nothing of chunks or vectors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, column, exists, false, func, not_, or_, select, true

from index.errors import InvalidInput
from index.records import AttributeFilter
from index.schema import documents

MAX_CONDITIONS = 100
MAX_DEPTH = 10
MAX_VALUES = 1000
NUMBERS, STRINGS, BOOLEANS = ("integer", "real"), ("text",), ("true", "false")

_RANGES: dict[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_COMPARISONS = ("eq", "ne", *_RANGES, "in", "nin")


def condition_of(where: AttributeFilter) -> ColumnElement[bool]:
    """Translate a filter. Raises InvalidInput (param "filters") with what was expected."""
    remaining = [MAX_CONDITIONS]
    return _translate(where, remaining, depth=0)


def check_attributes(attributes: Mapping[str, object]) -> None:
    """Refuse attributes that cannot be stored and compared exactly. Raises InvalidInput."""
    for key, value in attributes.items():
        check_words(key, what="an attribute's key")
        _kind_of(value, f"the attribute {key!r}")


def check_words(words: object, *, what: str, max_chars: int = 4096) -> None:
    """Refuse what is not a usable piece of text: empty, NUL, half a surrogate pair, too long."""
    if not isinstance(words, str) or not 0 < len(words) <= max_chars:
        raise InvalidInput(f"expected {what} of 1 to {max_chars} characters, got {words!r:.100}")
    _check_characters(words, what)


def _check_characters(words: str, what: str) -> None:
    if "\0" in words or any("\ud800" <= c <= "\udfff" for c in words):
        raise InvalidInput(f"{what} holds a NUL or half a surrogate pair: {words!r:.100}")


def _translate(where: object, remaining: list[int], *, depth: int) -> ColumnElement[bool]:
    remaining[0] -= 1
    if remaining[0] < 0 or depth > MAX_DEPTH:
        raise _wrong(f"expected at most {MAX_CONDITIONS} conditions, nested {MAX_DEPTH} deep")
    if not isinstance(where, Mapping):
        raise _wrong(f"expected an object with a type, got {where!r:.200}")
    kind = where.get("type")
    if kind in ("and", "or"):
        _check_keys(where, ("type", "filters"))
        parts = where["filters"]
        if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
            raise _wrong(f"expected a list of at least one filter in {kind!r}, got {parts!r:.200}")
        conditions = [_translate(part, remaining, depth=depth + 1) for part in parts]
        return and_(*conditions) if kind == "and" else or_(*conditions)
    if kind not in _COMPARISONS:
        raise _wrong(f"expected a type among {(*_COMPARISONS, 'and', 'or')}, got {kind!r:.100}")
    _check_keys(where, ("type", "key", "value"))
    return _compare(str(kind), where["key"], where["value"])


def _compare(kind: str, key: object, value: object) -> ColumnElement[bool]:
    check_words(key, what="a filter's key")
    if kind in ("in", "nin"):
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MAX_VALUES:
            raise _wrong(f"expected a list of at most {MAX_VALUES} values, got {value!r:.200}")
        found = _any_of(str(key), list(value))
        return found if kind == "in" else not_(found)
    if kind in ("eq", "ne"):
        found = _any_of(str(key), [value])
        return found if kind == "eq" else not_(found)
    types = _kind_of(value, f"the value for {key!r}")
    if types is BOOLEANS:
        raise _wrong(f"expected a number or text to compare {key!r} with, got {value!r}")
    compare = _RANGES[kind]
    return _holds(str(key), types, lambda stored: compare(stored, value))


def _any_of(key: str, values: list[object]) -> ColumnElement[bool]:
    groups: dict[tuple[str, ...], list[object]] = {}
    for value in values:
        groups.setdefault(_kind_of(value, f"the value for {key!r}"), []).append(value)
    conditions = [_holds(key, types, _member(same)) for types, same in groups.items()]
    return or_(false(), *conditions)


def _member(values: list[object]) -> Callable[[ColumnElement[Any]], ColumnElement[bool]]:
    return lambda stored: stored.in_(values)


def _holds(
    key: str,
    types: tuple[str, ...],
    test: Callable[[ColumnElement[Any]], ColumnElement[bool]],
) -> ColumnElement[bool]:
    if key == "document":
        return test(documents.c.name) if types is STRINGS else not_(true())
    each = func.json_each(documents.c.attributes).table_valued(
        column("key"), column("value"), column("type")
    )
    return exists(select(1).where(each.c.key == key, each.c.type.in_(types), test(each.c.value)))


def _kind_of(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, bool):
        return BOOLEANS
    if isinstance(value, str):
        _check_characters(value, what)
        return STRINGS
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return NUMBERS
    if isinstance(value, float) and math.isfinite(value):
        return NUMBERS
    raise InvalidInput(
        f"expected text, a finite 64-bit number or a boolean for {what}, got {value!r:.100}"
    )


def _check_keys(where: Mapping[Any, object], expected: tuple[str, ...]) -> None:
    if set(where) != set(expected):
        raise _wrong(f"expected exactly the keys {expected}, got {sorted(map(str, where))}")


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(f"filter: {message}", param="filters")
