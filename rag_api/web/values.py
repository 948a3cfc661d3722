"""Values of a JSON body: what JSON can write and nothing behind the routes can keep is refused.

Knows nothing of what a value means.
"""

from __future__ import annotations

import math

from index.errors import InvalidInput

LEAST, MOST = -(2**63), 2**63 - 1


def check(body: object) -> None:
    """Refuse half a surrogate pair and numbers that are not finite or beyond 64 bits, at any depth.

    Raises InvalidInput with the place, such as `messages.0.content`.
    """
    waiting = [("", body)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                _check_one(key, place)
                waiting.append((f"{place}.{key}", inner))
        elif isinstance(value, list):
            waiting.extend((f"{place}.{number}", inner) for number, inner in enumerate(value))
        else:
            _check_one(value, place)


def _check_one(value: object, place: str) -> None:
    param = place.removeprefix(".") or None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{param or 'the body'}: expected Unicode text, got half a surrogate pair: "
                f"{value!a:.100}",
                param=param,
            ) from None
    elif isinstance(value, int | float) and not _is_kept(value):
        raise InvalidInput(
            f"{param or 'the body'}: expected a finite 64-bit number, got {value!r:.40}",
            param=param,
        )


def _is_kept(value: int | float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else LEAST <= value <= MOST
