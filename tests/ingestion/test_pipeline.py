"""Files go into a real store: identity, replacement, failures that stay alone, cancelling."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from index import Index
from index.errors import Cancelled, FingerprintMismatch, NotFound, ParseError, UnsupportedFormat
from index.records import FloatArray, StoreRecord
from ingestion.pipeline import Pipeline
from ingestion.sources import Outcome, SourceFile
from ingestion.walking import walk
from ingestion.words import WordCounting


class HashingEmbedder:
    """A real, tiny embedder: each word adds a direction of its own. Counts what it embeds."""

    max_tokens = 200

    def __init__(self, *, fingerprint: str = "hashing", dimension: int = 64) -> None:
        self.fingerprint = fingerprint
        self.dimension = dimension
        self.made: list[int] = []
        self.delay_s = 0.0
        self.poison = ""
        self._counting = WordCounting()

    def count_tokens(self, text: str) -> int:
        return self._counting.count_tokens(text)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        return self._counting.token_spans(text)

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        time.sleep(self.delay_s * sum(self.count_tokens(t) for t in texts))
        self.made.append(len(texts))
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            assert self.count_tokens(text) <= self.max_tokens
            for word in text.lower().split():
                seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
                row += np.random.default_rng(seed).standard_normal(self.dimension, np.float32)
            if self.poison and text.startswith(self.poison):
                row[:] = np.nan
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


class Way:
    """A store with a pipeline into it."""

    def __init__(self, folder: Path, embedder: HashingEmbedder | None = None) -> None:
        self.folder = folder
        self.index = Index.open(folder / "data")
        self.embedder = embedder or HashingEmbedder()
        self.pipeline = Pipeline(self.index, self.embedder)
        self.store: StoreRecord = self.index.create_store(
            "s",
            tenant="acme",
            embedder="hashing",
            embedder_fingerprint=self.embedder.fingerprint,
            dimension=self.embedder.dimension,
            chunking={"size": 40, "overlap": 8},
        )

    def source(self, name: str, words: str | bytes) -> SourceFile:
        data = words if isinstance(words, bytes) else words.encode()
        path = self.folder / hashlib.sha256(name.encode() + data).hexdigest()
        path.write_bytes(data)
        return SourceFile(name, path=path)

    def ingest(
        self, *sources: SourceFile, cancelled: Callable[[], bool] = lambda: False
    ) -> list[Outcome]:
        return self.pipeline.ingest(self.store.id, sources, cancelled=cancelled)

    def chunks(self) -> list[str]:
        with self.index.view(self.store.id) as view:
            ids = view.chunk_ids(None)
            if ids is None:
                ids = np.array([h.chunk_id for h in view.dense(self.probe(), k=10_000)])
            return [p.text for p in view.passages([int(i) for i in ids], {})]

    def find(self, query: str) -> list[str]:
        vector = self.embedder.encode_passages([query])[0]
        with self.index.view(self.store.id) as view:
            hits = view.dense(vector, k=3) + view.lexical(query, k=3)
            return [p.text for p in view.passages([h.chunk_id for h in hits], {})]

    def probe(self) -> FloatArray:
        return self.embedder.encode_passages(["probe"])[0]


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    way = Way(tmp_path)
    yield way
    way.pipeline.close()
    way.index.close()


def words(seed: int, count: int = 120) -> str:
    generator = np.random.default_rng(seed)
    return " ".join(
        f"w{generator.integers(10_000)}{'.' if i % 9 == 8 else ''}" for i in range(count)
    )


def test_a_document_is_added_searchable_and_quotable(way: Way) -> None:
    outcome = way.ingest(way.source("a.md", "# Limits\n\nThe limit is ten parcels a day.\n"))[0]
    assert outcome.status == "added"
    assert outcome.document is not None
    assert outcome.document.num_chunks == 1
    assert "ten parcels" in way.find("the limit of parcels")[0]
    assert way.index.text(way.store.id, "a.md").startswith("# Limits")


def test_r1_three_uploads_are_one_version_and_embed_once(way: Way) -> None:
    source = way.source("a.md", words(1))
    first = way.ingest(source)[0]
    made = list(way.embedder.made)
    for _ in range(2):
        again = way.ingest(source)[0]
        assert (again.status, again.duplicate_of) == ("unchanged", "a.md")
        assert again.document == first.document
    assert way.embedder.made == made
    assert len(way.index.list_documents(way.store.id)) == 1


def test_r1_the_same_bytes_under_another_name_cost_no_embedding(way: Way) -> None:
    way.ingest(way.source("a.txt", words(1)))
    made = list(way.embedder.made)
    assert way.ingest(way.source("b.txt", words(1)))[0].status == "added"
    assert way.embedder.made == made


def test_r3_a_new_version_leaves_nothing_of_the_old(way: Way) -> None:
    way.ingest(way.source("p.md", "The limit is 10 parcels. " + words(2)))
    outcome = way.ingest(way.source("p.md", "The limit is 20 parcels."))[0]
    assert outcome.status == "replaced"
    assert way.chunks() == ["The limit is 20 parcels."]
    assert not any("10 parcels" in text for text in way.find("limit 10 parcels"))


def test_r4_two_readmes_of_two_folders_are_two_documents(way: Way, tmp_path: Path) -> None:
    root = tmp_path / "docs"
    for folder, text in (("a", "Apples are red."), ("b", "Bananas are yellow.")):
        (root / folder).mkdir(parents=True)
        (root / folder / "readme.md").write_text(text)
    outcomes = way.ingest(*walk(root).files)
    assert [o.name for o in outcomes] == ["a/readme.md", "b/readme.md"]
    assert way.index.text(way.store.id, "b/readme.md") == "Bananas are yellow."


def test_r6_one_by_one_and_all_at_once_give_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "all").mkdir()
    single, batch = Way(tmp_path / "one"), Way(tmp_path / "all")
    texts = {f"{i}.txt": words(i, 30 * i + 5) for i in range(8)}
    for name, text in texts.items():
        single.ingest(single.source(name, text))
    batch.ingest(*[batch.source(name, text) for name, text in texts.items()])
    seen = []
    for way in (single, batch):
        with way.index.view(way.store.id) as view:
            hits = view.dense(way.probe(), k=1000)
            passages = view.passages([h.chunk_id for h in hits], {})
            seen.append({(p.document, p.start, p.end, p.text) for p in passages})
        way.pipeline.close()
        way.index.close()
    assert seen[0] == seen[1]
    assert len(seen[0]) > 8


def test_d6_bad_files_between_good_ones_fail_alone(way: Way) -> None:
    outcomes = way.ingest(
        way.source("good1.txt", words(1)),
        way.source("x.txt", b"PK\x05\x06" + b"\0" * 18),
        way.source("empty.txt", b""),
        SourceFile("gone.txt", path=way.folder / "gone"),
        way.source("good2.txt", words(2)),
    )
    assert [o.status for o in outcomes] == ["added", "failed", "failed", "failed", "added"]
    assert isinstance(outcomes[1].error, UnsupportedFormat)
    assert isinstance(outcomes[2].error, ParseError)
    assert isinstance(outcomes[3].error, ParseError)
    assert len(way.index.list_documents(way.store.id)) == 2


def test_d6_a_document_that_the_store_refuses_fails_alone(way: Way) -> None:
    good, bad = way.source("good.txt", words(1)), way.source("bad.txt", words(2))
    way.embedder.poison = words(2).split()[0]
    outcomes = way.ingest(good, bad)
    assert [o.status for o in outcomes] == ["added", "failed"]
    assert outcomes[1].error is not None


def test_the_same_name_twice_in_one_run_ends_as_the_last(way: Way) -> None:
    outcomes = way.ingest(way.source("a.txt", "First words."), way.source("a.txt", "Last words."))
    assert [o.status for o in outcomes] == ["added", "replaced"]
    assert way.chunks() == ["Last words."]


def test_a_blob_of_the_index_is_a_source(way: Way) -> None:
    blob = way.index.put_blob(b"Words of a blob.")
    source = SourceFile("b.txt", sha256=blob.sha256, attributes={"year": 2026}, file_id=None)
    document = way.ingest(source)[0].document
    assert document is not None
    assert document.version == blob.sha256
    assert document.attributes["year"] == 2026
    assert way.ingest(source)[0].status == "unchanged"


def test_m1_m2_a_store_of_another_embedder_is_refused_before_any_work(way: Way) -> None:
    other = Pipeline(way.index, HashingEmbedder(fingerprint="other"))
    with pytest.raises(FingerprintMismatch, match="graft reindex"):
        other.ingest(way.store.id, [way.source("a.txt", "words")])


def test_an_unknown_store_is_not_found(way: Way) -> None:
    with pytest.raises(NotFound):
        way.pipeline.ingest("no-such-store", [])


def test_j3_cancel_at_half_stops_within_two_seconds_and_shows_nothing_half_done(way: Way) -> None:
    way.embedder.delay_s = 0.002
    sources = [way.source(f"{i}.txt", words(i, 400)) for i in range(20)]
    stop = threading.Event()
    stopped_at: list[float] = []

    def cancel_later() -> None:
        time.sleep(4)
        stopped_at.append(time.monotonic())
        stop.set()

    thread = threading.Thread(target=cancel_later)
    thread.start()
    outcomes = way.ingest(*sources, cancelled=stop.is_set)
    ended = time.monotonic()
    thread.join()
    assert ended - stopped_at[0] < 2
    done = [o for o in outcomes if o.status == "added"]
    lost = [o for o in outcomes if o.status == "failed"]
    assert lost
    assert all(isinstance(o.error, Cancelled) for o in lost)
    shown = {d.name: d.num_chunks for d in way.index.list_documents(way.store.id)}
    assert shown == {o.name: o.document.num_chunks for o in done if o.document}
    assert len(way.chunks()) == sum(shown.values())


def test_j6_progress_says_stages_and_never_runs_backwards(way: Way) -> None:
    told: list[tuple[str, int, int, str]] = []
    way.pipeline.ingest(
        way.store.id,
        [way.source(f"{i}.txt", words(i)) for i in range(30)],
        progress=lambda *step: told.append(step),
    )
    assert [t for t in told if t[0] == "parse"][-1] == ("parse", 30, 30, "files")
    assert {t[0] for t in told} == {"parse", "embed", "commit"}
    for stage in ("parse", "commit"):
        done = [t[1] for t in told if t[0] == stage]
        assert done == sorted(done)
    assert all(done <= total for _, done, total, _ in told)


def test_the_first_documents_are_searchable_long_before_the_last(way: Way) -> None:
    seen: list[int] = []

    def look(stage: str, done: int, total: int, unit: str) -> None:
        if stage == "parse" and done == 20:
            seen.append(len(way.index.list_documents(way.store.id)))

    way.pipeline.ingest(
        way.store.id, [way.source(f"{i}.txt", words(i, 300)) for i in range(60)], progress=look
    )
    assert 0 < seen[0] < 20


def test_equal_chunks_of_one_run_are_embedded_once(way: Way) -> None:
    way.ingest(*[way.source(f"{i}.txt", "The same notice.") for i in range(10)])
    assert sum(way.embedder.made) == 1


def test_many_texts_go_in_few_calls_once_the_speed_is_known(way: Way) -> None:
    way.ingest(way.source("a.txt", words(1, 30_000)))
    assert sum(way.embedder.made) > 700
    assert len(way.embedder.made) < 60


def test_d1_d4_a_job_cancelled_while_it_embeds_commits_nothing_afterwards(way: Way) -> None:
    job = way.index.enqueue("ingest", tenant="acme", store_id=way.store.id, payload={})
    assert way.index.claim_job("w", lease_s=60) is not None

    def cancel_at_embedding(stage: str, done: int, total: int, unit: str) -> None:
        if stage != "parse":
            way.index.cancel_job(job.id, tenant="acme")

    [outcome] = way.pipeline.ingest(
        way.store.id,
        [way.source("a.md", words(1))],
        progress=cancel_at_embedding,
        during_job=job.id,
        worker="w",
    )
    assert isinstance(outcome.error, Cancelled)
    assert way.index.list_documents(way.store.id) == []
    [control] = way.ingest(way.source("a.md", words(1)))
    assert control.status == "added"


def test_j3_a_long_split_ends_soon_after_its_cancel(way: Way) -> None:
    calls = 0

    def cancelled() -> bool:
        nonlocal calls
        calls += 1
        return calls > 20

    text = "\n\n".join(f"Paragraph {i} says something." for i in range(20_000))
    began = time.monotonic()
    [whole] = way.ingest(way.source("small.md", "One line."))
    [outcome] = way.ingest(way.source("long.md", text), cancelled=cancelled)
    assert whole.status == "added"
    assert isinstance(outcome.error, Cancelled)
    assert calls < 25
    assert time.monotonic() - began < 30


def test_unchanged_bytes_with_other_attributes_take_those_on_without_embedding(way: Way) -> None:
    first = way.source("a.md", "Ten litres a minute.")
    way.ingest(SourceFile("a.md", path=first.path, attributes={"v": 1}, file_id="file-1"))
    made = len(way.embedder.made)
    outcomes = way.ingest(
        SourceFile("a.md", path=first.path, attributes={"v": 2}, file_id="file-2")
    )
    assert outcomes[0].status == "unchanged"
    assert outcomes[0].document == way.index.get_document(way.store.id, "a.md")
    assert outcomes[0].document.attributes == {"v": 2}
    assert outcomes[0].document.file_id == "file-2"
    assert len(way.embedder.made) == made


@pytest.mark.parametrize("second", ["One line.", "Another line."])
def test_ingesting_again_without_attributes_keeps_those_that_are_there(
    way: Way, second: str
) -> None:
    first = way.source("a.md", "One line.")
    way.ingest(SourceFile("a.md", path=first.path, attributes={"v": 1}))
    [outcome] = way.ingest(way.source("a.md", second))
    assert outcome.document is not None
    assert outcome.document.attributes == {"v": 1}
