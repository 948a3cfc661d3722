"""A GGUF file in, its plain settings out (numbers and texts; arrays are stepped over).

The gguf package parses every array element into Python objects, which takes seconds for a
vocabulary; a look at two settings needs none of that. Knows nothing of what they mean.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from index.errors import ModelError

_LAYOUTS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_MAX_STRING = 1 << 24
Setting = str | int | float | bool


def read_settings(path: Path) -> Mapping[str, Setting]:
    """Read the scalar settings. Raises ModelError for a file that is no GGUF or is cut short."""
    settings: dict[str, Setting] = {}
    with path.open("rb") as file:
        try:
            if file.read(4) != b"GGUF":
                raise ModelError(f"expected a GGUF file, {path.name!r} does not begin like one")
            _, _, count = struct.unpack("<IQQ", file.read(20))
            for _ in range(count):
                name = _string(file)
                value = _value(file, _number(file, "I"))
                if value is not None:
                    settings[name] = value
        except (struct.error, UnicodeDecodeError, KeyError) as error:
            raise ModelError(f"{path.name!r} is a damaged GGUF file: {error!r}") from error
    return settings


def _value(file: BinaryIO, kind: int) -> Setting | None:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        value: Setting = struct.unpack(
            "<" + _LAYOUTS[kind], file.read(struct.calcsize(_LAYOUTS[kind]))
        )[0]
        return value
    item, length = _number(file, "I"), _number(file, "Q")
    if item in _LAYOUTS:
        file.seek(length * struct.calcsize(_LAYOUTS[item]), 1)
    else:
        for _ in range(length):
            _value(file, item)
    return None


def _number(file: BinaryIO, layout: str) -> int:
    return int(struct.unpack("<" + layout, file.read(struct.calcsize("<" + layout)))[0])


def _string(file: BinaryIO) -> str:
    length = _number(file, "Q")
    if length > _MAX_STRING:
        raise ModelError(f"a GGUF setting of {length} bytes is beyond reason; the file is damaged")
    return file.read(length).decode("utf-8", "replace")
