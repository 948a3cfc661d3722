"""A growing folder in, progress out: how many bytes a download has brought so far.

Knows nothing of who downloads or what.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from index.records import Progress

INTERVAL_S = 0.2


@contextmanager
def watched(folder: Path, stage: str, total: int, progress: Progress) -> Iterator[None]:
    """Report the bytes under `folder` five times a second, from a thread, while the block runs.

    `total` 0 means unknown. The last report is complete only if the block succeeded.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL_S):
            arrived = bytes_under(folder)
            progress(stage, min(arrived, total) if total else arrived, total, "B")

    thread = threading.Thread(target=watch, daemon=True, name=f"watch {stage}")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(stage, total or bytes_under(folder), total, "B")


@contextmanager
def no_hub_bars() -> Iterator[None]:
    """Keep the hub client's own progress bars away while the block runs."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    had_bars = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            enable_progress_bars()


def bytes_under(folder: Path) -> int:
    """Add up the files under a folder that others are changing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # renamed or removed while we look
            continue
    return total
