"""Run as a child process: work on a data folder without end, and log each acknowledgement.

`crash_child.py DATA_DIR LOG SEED [--steps N] [--die MOMENT] [--row-first]`. A line "begin JSON" is
in the log before an operation starts, "done JSON" after it returned. `--die` ends the process by
SIGKILL at a moment: "published" (a segment has its name, no row names it), "committed" (a row does,
nothing was cleaned up), "failed" (an operation was refused). `--row-first` is the negative
control: it commits rows that name a segment before the segment is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
from pathlib import Path

from index import Index, StorageFailed
from index.files import Folder, Written
from tests.store.making import (
    BACKBONE,
    FINGERPRINT,
    make_document,
    make_memory,
    make_store,
)


def main() -> None:
    folder, log, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    steps, moment = int(option("--steps", "1000000")), option("--die", "never")
    if "--row-first" in sys.argv:
        write_rows_first()
    die_at(moment)
    index = Index.open(folder)
    if not index.list_stores(tenant="t"):
        make_store(index)
    store = index.get_store("s", tenant="t")
    rng = random.Random(seed)
    with open(log, "a") as out:
        for _ in range(steps):
            operation = choose(rng, [d.name for d in index.list_documents(store.id)])
            say(out, "begin", operation)
            try:
                run(index, store.id, operation)
            except StorageFailed:
                say(out, "failed", operation)
                if moment == "failed":
                    die()
                continue
            say(out, "done", operation)
            remember(index, store.id)


def option(name: str, default: str) -> str:
    """Give the value of an option; of several, the last."""
    pairs = zip(sys.argv, sys.argv[1:], strict=False)
    return ([value for each, value in pairs if each == name] or [default])[-1]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def choose(rng: random.Random, present: list[str]) -> dict[str, list[str] | dict[str, str]]:
    """Choose what to do next: {"put": {name: text}} or {"delete": [name]}."""
    if present and rng.random() < 0.4:
        return {"delete": rng.sample(present, min(len(present), rng.randint(1, 3)))}
    names = rng.sample(range(12), rng.randint(1, 3))
    return {"put": {f"d{n}": f"document {n} edition {rng.random()} " * 3 for n in names}}


def run(index: Index, store_id: str, operation: dict) -> None:
    """Do one operation; the bytes of new documents are put first."""
    if "delete" in operation:
        index.delete_documents(store_id, operation["delete"])
        return
    documents = [make_document(name, text) for name, text in operation["put"].items()]
    for text in operation["put"].values():
        index.put_blob(text.encode())
    index.commit_documents(store_id, documents, embedder_fingerprint=FINGERPRINT)


def remember(index: Index, store_id: str) -> None:
    """Build the memory of one document, if the disk lets us."""
    for document in index.pending_memory(store_id, BACKBONE)[:1]:
        with contextlib.suppress(StorageFailed):
            index.commit_memory(document, BACKBONE, make_memory(index.text_of(document)))


def say(out, word: str, operation: dict) -> None:
    out.write(f"{word} {json.dumps(operation)}\n")
    out.flush()
    os.fsync(out.fileno())


def write_rows_first() -> None:
    """Break the protocol: a segment's bytes follow when the rows that name it are committed."""
    late: list[tuple[Folder, str, list[bytes]]] = []
    write_segment, remove_files = Folder.write_segment, Folder.remove

    def name_only(self: Folder, kind: str, parts) -> Written:
        copied = [bytes(part) for part in parts]
        written = write_segment(self, kind, copied)
        (self.segments / written.name).unlink()
        late.append((self, written.name, copied))
        return written

    def remove(self: Folder, folder: Path, names) -> None:
        for owner, name, parts in late:
            (owner.segments / name).write_bytes(b"".join(parts))
        late.clear()
        remove_files(self, folder, names)

    Folder.write_segment, Folder.remove = name_only, remove


def die_at(moment: str) -> None:
    """Put the death in: before `write_segment` returns, or where cleaning up after it begins."""
    write_segment, remove_files, published = Folder.write_segment, Folder.remove, []

    def write(self: Folder, kind: str, parts) -> Written:
        published.append(write_segment(self, kind, parts))
        if moment == "published":
            die()
        return published[-1]

    def remove(self: Folder, folder: Path, names) -> None:
        if published and moment == "committed":
            die()
        remove_files(self, folder, names)

    Folder.write_segment, Folder.remove = write, remove


if __name__ == "__main__":
    main()
