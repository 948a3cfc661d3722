"""Search over real stores: filters, thresholds, fusion, reranking, diversity, versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from backbone import Embedder
from index import Index, StoreRecord
from index.errors import ConfigError, FingerprintMismatch, GraftError, ModelError
from index.records import Chunk, NewDocument, ParsedText
from retriever import RetrievalSettings, Retriever

WORDS = {
    "limits.md": "The upload limit is 20 megabytes. Larger files are refused at the door.",
    "opening.md": "The museum opens at nine in the morning and closes at five.",
    "tickets.md": "Tickets for the museum cost five euros; children pay nothing.",
    "chips.md": "中国的半导体产业发展迅速，国際標準化也很重要。",
    "weather.md": "今日の天気は晴れです。검색 결과가 없습니다.",
    "whales.md": "Whales migrate across oceans every winter to feed on krill.",
}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index.open(tmp_path / "data")
    yield opened
    opened.close()


def new_store(index: Index, embedder: Embedder, name: str = "docs") -> StoreRecord:
    return index.create_store(
        name,
        tenant="default",
        embedder=embedder.name,
        embedder_fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        chunking={"size": 256},
    )


def put(
    index: Index, store: StoreRecord, embedder: Embedder, words: dict[str, str], **attributes: str
) -> None:
    documents = []
    for number, (name, text) in enumerate(words.items()):
        chunk = Chunk(0, len(text), embedder.count_tokens(text))
        documents.append(
            NewDocument(
                name=name,
                version=f"{abs(hash((name, text))):064x}"[-64:],
                num_bytes=len(text.encode()),
                parsed=ParsedText(text, "plain", "text/plain"),
                chunks=[chunk],
                vectors=embedder.encode_passages([text]),
                attributes={"number": number, **attributes},
            )
        )
    index.commit_documents(store.id, documents, embedder_fingerprint=embedder.fingerprint)


@pytest.fixture
def store(index: Index, fast_embedder: Embedder) -> StoreRecord:
    made = new_store(index, fast_embedder)
    put(index, made, fast_embedder, WORDS)
    return made


def names(
    retriever: Retriever, query: str, stores: Sequence[StoreRecord], settings: RetrievalSettings
) -> list[str]:
    return [p.document for p in retriever.search(query, [s.id for s in stores], settings)]


def test_each_mode_finds_the_document_and_names_its_scores(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    retriever = Retriever(index, fast_embedder)
    expected = {
        "dense": {"dense"},
        "lexical": {"lexical"},
        "hybrid": {"dense", "lexical", "fused"},
    }
    for mode, kinds in expected.items():
        settings = RetrievalSettings(k=3, mode=mode)  # type: ignore[arg-type]
        found = retriever.search("Say when the museum opens", [store.id], settings)
        assert found[0].document == "opening.md"
        assert set(found[0].scores) == kinds
        assert found[0].text == WORDS["opening.md"]
        last = "fused" if mode == "hybrid" else mode
        values = [passage.scores[last] for passage in found]
        assert values == sorted(values, reverse=True)


def test_dense_scores_are_inner_products_and_the_order_is_exact(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    query = "animals of the sea"
    rows = fast_embedder.encode_passages(list(WORDS.values()))
    products = rows @ fast_embedder.encode_queries([query])[0]
    found = Retriever(index, fast_embedder).search(
        query, [store.id], RetrievalSettings(k=6, mode="dense")
    )
    exact = dict(zip(WORDS, products, strict=True))
    assert [p.document for p in found] == sorted(exact, key=lambda name: -exact[name])
    for passage in found:
        assert passage.scores["dense"] == pytest.approx(exact[passage.document], abs=1e-5)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("国際標準化", "chips.md"),
        ("半导体", "chips.md"),
        ("天気", "weather.md"),
        ("검색", "weather.md"),
    ],
)
def test_s3_words_of_unsegmented_scripts_are_found_and_nothing_else_is(
    index: Index, store: StoreRecord, fast_embedder: Embedder, query: str, expected: str
) -> None:
    retriever = Retriever(index, fast_embedder)
    assert names(retriever, query, [store], RetrievalSettings(mode="lexical")) == [expected]


def test_s1_a_filter_that_matches_the_50_farthest_still_gives_k(
    index: Index, fast_embedder: Embedder
) -> None:
    store = new_store(index, fast_embedder)
    random = np.random.default_rng(0)
    query = fast_embedder.encode_queries(["needle"])[0]
    rows = random.normal(size=(10_000, fast_embedder.dimension)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    far = np.argsort(rows @ query)[:50]
    text = "word " * 10_000
    is_far = np.zeros(10_000, dtype=bool)
    is_far[far] = True
    for name, rows_of in (("far", rows[is_far]), ("near", rows[~is_far])):
        chunks = [Chunk(5 * i, 5 * i + 4, 1) for i in range(len(rows_of))]
        document = NewDocument(
            name=name,
            version=name.encode().hex().zfill(64),
            num_bytes=len(text),
            parsed=ParsedText(text, "plain", "text/plain"),
            chunks=chunks,
            vectors=rows_of,
            attributes={"kind": name},
        )
        index.commit_documents(store.id, [document], embedder_fingerprint=fast_embedder.fingerprint)
    where = {"type": "eq", "key": "kind", "value": "far"}
    for mode in ("dense", "hybrid"):
        settings = RetrievalSettings(k=10, mode=mode, where=where)  # type: ignore[arg-type]
        found = Retriever(index, fast_embedder).search("needle", [store.id], settings)
        assert len(found) == 10
        assert {passage.document for passage in found} == {"far"}


def test_s4_thresholds_cut_each_kind_of_score_and_zero_is_honoured(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    retriever = Retriever(index, fast_embedder)
    query = "When does the museum open?"
    dense = retriever.search(query, [store.id], RetrievalSettings(k=6, mode="dense"))
    values = [p.scores["dense"] for p in dense]
    assert min(values) < 0 < max(values), "the data must have scores on both sides of zero"
    for minimum in (0.0, values[1], values[-1], -1.0, 2.0):
        kept = retriever.search(
            query, [store.id], RetrievalSettings(k=6, mode="dense", min_dense=minimum)
        )
        assert [p.document for p in kept] == [
            p.document for p in dense if p.scores["dense"] >= minimum
        ]
    lexical = retriever.search(query, [store.id], RetrievalSettings(k=6, mode="lexical"))
    bound = lexical[0].scores["lexical"]
    kept = retriever.search(
        query, [store.id], RetrievalSettings(k=6, mode="lexical", min_lexical=bound)
    )
    assert [p.document for p in kept] == [
        p.document for p in lexical if p.scores["lexical"] >= bound
    ]
    both = retriever.search(
        query, [store.id], RetrievalSettings(k=6, min_dense=0.0, min_lexical=bound)
    )
    for passage in both:
        assert passage.scores.get("dense", 0.0) >= 0.0
        assert passage.scores.get("lexical", bound) >= bound
    assert not retriever.search(
        query, [store.id], RetrievalSettings(min_dense=2.0, min_lexical=1e9)
    )


class LongestFirst:
    """A real, silly reranker: minus one for every character short of 60."""

    name = "longest-first"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.seen = list(passages)
        return [float(len(text) - 60) for text in passages]


def test_a_reranker_decides_the_order_and_its_negative_threshold_counts(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    reranker = LongestFirst()
    retriever = Retriever(index, fast_embedder, reranker=reranker)
    found = retriever.search("museum", [store.id], RetrievalSettings(k=6, rerank=True))
    assert [len(p.text) for p in found] == sorted((len(p.text) for p in found), reverse=True)
    assert {"rerank", "fused"} <= set(found[0].scores)
    kept = retriever.search(
        "museum", [store.id], RetrievalSettings(k=6, rerank=True, min_rerank=-30.0)
    )
    assert {p.document for p in kept} == {p.document for p in found if len(p.text) >= 30}
    assert 0 < len(kept) < len(found)
    retriever.search("museum", [store.id], RetrievalSettings(k=1, rerank=True, rerank_depth=2))
    assert len(reranker.seen) == 2


def test_s5_asking_for_a_reranker_that_is_not_configured_is_an_error(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    with pytest.raises(ConfigError, match="reranker"):
        Retriever(index, fast_embedder).search("x", [store.id], RetrievalSettings(rerank=True))


class Broken:
    name = "broken"

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        return [0.5]


def test_a_reranker_that_miscounts_is_refused(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    with pytest.raises(ModelError, match="broken"):
        Retriever(index, fast_embedder, reranker=Broken()).search(
            "museum", [store.id], RetrievalSettings(rerank=True)
        )


def test_diversity_brings_another_document_before_a_copy(
    index: Index, store: StoreRecord, fast_embedder: Embedder
) -> None:
    put(index, store, fast_embedder, {"copy.md": WORDS["opening.md"] + " Really."})
    retriever = Retriever(index, fast_embedder)
    query = "When does the museum open in the morning?"
    plain = names(retriever, query, [store], RetrievalSettings(k=2))
    diverse = names(retriever, query, [store], RetrievalSettings(k=2, mmr_lambda=0.3))
    assert set(plain) == {"opening.md", "copy.md"}
    assert diverse[0] == plain[0]
    assert diverse[1] not in plain
    assert names(retriever, query, [store], RetrievalSettings(k=7, mmr_lambda=1.0)) == names(
        retriever, query, [store], RetrievalSettings(k=7)
    )


def test_several_stores_are_searched_as_one_list(index: Index, fast_embedder: Embedder) -> None:
    left, right = (new_store(index, fast_embedder, name) for name in ("left", "right"))
    halves = list(WORDS.items())
    put(index, left, fast_embedder, dict(halves[:3]))
    put(index, right, fast_embedder, dict(halves[3:]))
    whole = new_store(index, fast_embedder, "whole")
    put(index, whole, fast_embedder, WORDS)
    retriever = Retriever(index, fast_embedder)
    settings = RetrievalSettings(k=4, mode="dense")
    for query in ("museum tickets", "sea animals", "半导体"):
        assert names(retriever, query, [left, right], settings) == names(
            retriever, query, [whole], settings
        )
        for order in itertools.permutations([left, right]):
            found = retriever.search(query, [s.id for s in order], RetrievalSettings(k=6))
            assert len({(p.store_id, p.chunk_id) for p in found}) == len(found)
    assert retriever.search("museum", [], settings) == []


def test_r3_a_new_version_leaves_nothing_of_the_old_one_to_find(
    index: Index, fast_embedder: Embedder
) -> None:
    store = new_store(index, fast_embedder)
    retriever = Retriever(index, fast_embedder)
    put(index, store, fast_embedder, {"p.md": "The limit is 10 megabytes."})
    assert "10" in retriever.search("limit", [store.id])[0].text
    put(index, store, fast_embedder, {"p.md": "The limit is 20 megabytes."})
    for mode in ("dense", "lexical", "hybrid"):
        settings = RetrievalSettings(k=10, mode=mode)  # type: ignore[arg-type]
        found = retriever.search("limit 10 megabytes", [store.id], settings)
        assert [p.text for p in found] == ["The limit is 20 megabytes."]


def test_r4_documents_of_one_file_name_are_both_found_and_told_apart_by_path(
    index: Index, fast_embedder: Embedder
) -> None:
    store = new_store(index, fast_embedder)
    put(
        index,
        store,
        fast_embedder,
        {
            "a/readme.md": "The red engine needs diesel fuel.",
            "b/readme.md": "The blue engine needs electric power.",
        },
    )
    found = Retriever(index, fast_embedder).search("engine", [store.id])
    assert {p.document for p in found} == {"a/readme.md", "b/readme.md"}
    only = RetrievalSettings(where={"type": "eq", "key": "document", "value": "b/readme.md"})
    found = Retriever(index, fast_embedder).search("diesel engine", [store.id], only)
    assert {p.document for p in found} == {"b/readme.md"}


def test_m2_vectors_of_another_embedder_are_refused_by_fingerprint(
    index: Index, fast_embedder: Embedder
) -> None:
    store = index.create_store(
        "other",
        tenant="default",
        embedder="other-model",
        embedder_fingerprint="0" * 64,
        dimension=fast_embedder.dimension,
        chunking={"size": 256},
    )
    retriever = Retriever(index, fast_embedder)
    for mode in ("dense", "hybrid"):
        with pytest.raises(FingerprintMismatch, match="graft reindex"):
            retriever.search("x", [store.id], RetrievalSettings(mode=mode))  # type: ignore[arg-type]
    assert retriever.search("x", [store.id], RetrievalSettings(mode="lexical")) == []


@pytest.mark.parametrize("query", ["", "  ", '"', "AND OR NOT (", "*", "a" * 5000, "\x00", "😀"])
def test_odd_queries_never_fail(
    index: Index, store: StoreRecord, fast_embedder: Embedder, query: str
) -> None:
    for mode in ("dense", "lexical", "hybrid"):
        settings = RetrievalSettings(mode=mode)  # type: ignore[arg-type]
        assert len(Retriever(index, fast_embedder).search(query, [store.id], settings)) <= 5


def test_an_empty_and_an_unknown_store(index: Index, fast_embedder: Embedder) -> None:
    store = new_store(index, fast_embedder)
    assert Retriever(index, fast_embedder).search("anything", [store.id]) == []
    with pytest.raises(GraftError):
        Retriever(index, fast_embedder).search("anything", ["vs_nowhere"])
