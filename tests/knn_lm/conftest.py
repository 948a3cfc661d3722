"""Token memories made of real texts and tiny backbones, laid out as the store lays them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from backbone import LanguageModel
from index.records import DocumentRecord, MemoryView
from knn_lm import build_arrays

MakeView = Callable[..., MemoryView]


def _record(number: int, name: str, text: str, memories: tuple[str, ...]) -> DocumentRecord:
    return DocumentRecord(
        id=number,
        store_id="vs_1",
        name=name,
        version=f"{number:064x}",
        text_sha="0" * 64,
        format="plain",
        media_type="text/plain",
        num_bytes=len(text.encode()),
        num_chars=len(text),
        num_chunks=1,
        page_starts=(),
        coverage=1.0,
        warnings=(),
        attributes={},
        file_id=None,
        memories=memories,
        created=0,
    )


def _make_view(model: LanguageModel, texts: Mapping[str, str], **options: int) -> MemoryView:
    """Build the memory of named texts under a model."""
    documents, keys, values, starts, ends, document_of = [], [], [], [], [], []
    for number, (name, text) in enumerate(texts.items()):
        arrays = build_arrays(model, text, **options)
        documents.append(_record(number, name, text, (model.fingerprint,)))
        keys.append(arrays.keys)
        values.append(arrays.tokens[1:])
        starts.append(arrays.starts[1:])
        ends.append(arrays.ends[1:])
        document_of.append(np.full(len(arrays.keys), number, dtype=np.int64))
    table = np.concatenate([np.empty((0, model.key_dim), np.float16), *keys])
    table.flags.writeable = False  # as mapped from disk
    return MemoryView(
        keys=table,
        values=_joined(values),
        starts=_joined(starts),
        ends=_joined(ends),
        document_of=_joined(document_of),
        documents=tuple(documents),
        generation=1,
        pending=0,
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *parts])


@pytest.fixture(scope="session")
def make_view() -> MakeView:
    return _make_view
