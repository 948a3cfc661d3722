"""Collection at start: files that no row names go, and what dead processes left behind.

Runs inside a write transaction under the writer lock, when no other process can be between its
rename and its commit. Knows nothing of what the files hold.
"""

from __future__ import annotations

import os
import shutil

from sqlalchemy import select

from index import commits
from index.blobs import release_abandoned
from index.catalogue import named_blobs, named_segments
from index.core import Core
from index.schema import stores
from index.terms import RULE


def collect(core: Core) -> None:
    """Remove every file that no row names, and temporary files of sessions that are gone."""
    with core.write() as (connection, garbage):
        garbage.blobs += release_abandoned(connection, core.folder)
        kept_segments, kept_blobs = named_segments(connection), named_blobs(connection)
        garbage.segments += set(os.listdir(core.folder.segments)) - kept_segments
        garbage.blobs += set(os.listdir(core.folder.blobs)) - kept_blobs
        stale = select(stores.c.pk).where(stores.c.lexical != RULE)
        for pk in connection.execute(stale).scalars().all():
            commits.rebuild_lexical(core, connection, pk)
        for session in os.listdir(core.folder.root / "tmp"):
            if not core.folder.is_living(session):
                shutil.rmtree(core.folder.root / "tmp" / session, ignore_errors=True)
