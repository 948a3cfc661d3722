"""Token memories put together or cut down: views in, one view out. Pure array work.

Knows nothing of models, stores or requests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from index.records import MemoryView


def merged(views: Sequence[MemoryView]) -> MemoryView:
    """Put views under one backbone together, in the order given."""
    if len(views) == 1:
        return views[0]
    offsets = np.cumsum([0, *(len(view.documents) for view in views[:-1])])
    filled = [(view, offset) for view, offset in zip(views, offsets, strict=True) if len(view.keys)]
    if not filled:
        return views[0]
    parts = [view for view, _ in filled]
    return MemoryView(
        keys=np.concatenate([view.keys for view in parts]),
        values=np.concatenate([view.values for view in parts]),
        starts=np.concatenate([view.starts for view in parts]),
        ends=np.concatenate([view.ends for view in parts]),
        document_of=np.concatenate([view.document_of + offset for view, offset in filled]),
        documents=tuple(document for view in views for document in view.documents),
        generation=max(view.generation for view in views),
        pending=sum(view.pending for view in views),
    )


def restricted(view: MemoryView, wanted: Collection[tuple[str, str]]) -> MemoryView:
    """Keep the entries of some documents, given as (store id, name)."""
    is_wanted = np.array([(doc.store_id, doc.name) in wanted for doc in view.documents], dtype=bool)
    keep = is_wanted[view.document_of] if len(view.document_of) else np.zeros(0, dtype=bool)
    return MemoryView(
        keys=view.keys[keep],
        values=view.values[keep],
        starts=view.starts[keep],
        ends=view.ends[keep],
        document_of=view.document_of[keep],
        documents=view.documents,
        generation=view.generation,
        pending=view.pending,
    )
