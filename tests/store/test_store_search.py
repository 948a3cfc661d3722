"""Dense, lexical and filtered search against slow oracles: cases S1, S2, S3."""

from __future__ import annotations

import dataclasses
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index import Chunk, Index, InvalidInput, NewDocument, NotFound, ParsedText, Span
from index.lexical import telling
from index.terms import query_terms, terms_of
from tests.store.making import (
    DIMENSION,
    FINGERPRINT,
    commit,
    make_document,
    make_store,
    sentences,
    vector_of,
)


def one_chunk(name: str, vector: np.ndarray, **attributes: str | int | float | bool) -> NewDocument:
    return NewDocument(
        name=name,
        version=f"{int(name):064x}",
        num_bytes=len(name),
        parsed=ParsedText(name, "plain", "text/plain"),
        chunks=[Chunk(0, len(name), 1)],
        vectors=vector[None].astype(np.float32),
        attributes=attributes,
    )


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    gone=st.sets(st.integers(0, 30), max_size=20),
    k=st.integers(1, 40),
    seed=st.integers(0, 2**16),
)
def test_dense_search_equals_brute_force_after_any_commits_and_deletes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], gone: set[int], k: int, seed: int
):
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(sum(sizes), DIMENSION)))
    with Index.open(tmp_path_factory.mktemp("dense")) as index:
        store, first = make_store(index), 0
        for number, size in enumerate(sizes):
            rows = range(first, first + size)
            commit(index, store, *(one_chunk(str(row), vectors[row]) for row in rows))
            if number % 2:
                with index.view(store.id) as view:
                    view.dense(vectors[0], k=1)
            first += size
        index.delete_documents(store.id, [str(row) for row in gone])
        kept = [row for row in range(len(vectors)) if row not in gone]
        query = unit(rng.normal(size=(1, DIMENSION)))[0]
        with index.view(store.id) as view:
            hits = view.dense(query, k=k)
            names = [p.document for p in view.passages([h.chunk_id for h in hits], {})]
        truth = sorted((-float(vectors[row] @ query), row) for row in kept)[:k]
        assert [int(name) for name in names] == [row for _, row in truth]
        np.testing.assert_allclose([h.score for h in hits], [-s for s, _ in truth], atol=1e-5)


def test_s1_a_filter_for_the_50_farthest_of_10000_gives_exactly_k(index: Index):
    store, rng = make_store(index), np.random.default_rng(3)
    vectors = unit(rng.normal(size=(10_000, DIMENSION)))
    order = np.argsort(vectors @ vectors[0])
    far = [one_chunk(str(row), vectors[row], far=True) for row in order[:50]]
    near = make_document("near", "n" * 9950, size=1)
    near = dataclasses.replace(near, vectors=vectors[order[50:]], attributes={"far": False})
    commit(index, store, *far[:25], near, *far[25:])
    where = {"type": "eq", "key": "far", "value": True}
    with index.view(store.id) as view:
        for k in (1, 10, 50, 60):
            hits = view.dense(vectors[0], k=k, where=where)
            names = [p.document for p in view.passages([h.chunk_id for h in hits], {})]
            assert names == [str(row) for row in order[:50][::-1][:k]]
            assert len(view.lexical(" ".join(names), k=k, where=where)) == min(k, 50)


def test_s2_lexical_search_reads_a_standing_index_and_never_the_texts(index: Index):
    store = make_store(index)
    commit(index, store, *(make_document(str(i), t) for i, t in enumerate(sentences(300))))
    with index.view(store.id) as view:
        view.connection.exec_driver_sql("CREATE TEMP TABLE texts (pk, sha, data)")
        try:
            (hit, *_) = view.lexical("number 217", k=3)
        finally:
            view.connection.exec_driver_sql("DROP TABLE temp.texts")
        assert view.passages([hit.chunk_id], {})[0].text.startswith("item number 217 ")


@pytest.mark.parametrize(
    "query", ["国際標準化", "天気", "半导体", "검색", "天", "索", "ภาษา", "標準"]
)
def test_s3_unsegmented_scripts_are_found_and_rows_without_a_match_never(index: Index, query: str):
    store = make_store(index)
    texts = {
        "ja": "この機構は国際標準化のために働く。",
        "wx": "明日の天気は晴れです",
        "zh": "半导体产业正在发展",
        "ko": "문서검색엔진을 만들다",
        "th": "ฉันเรียนภาษาไทย",
        "zx": "全文检索",
        "en": "a plain English sentence",
    }
    if query == "索":
        texts["ko"] = "plain"
    commit(index, store, *(make_document(name, text, size=99) for name, text in texts.items()))
    with index.view(store.id) as view:
        hits = view.lexical(query, k=10)
        found = {p.document for p in view.passages([h.chunk_id for h in hits], {})}
    assert found == {name for name, text in texts.items() if query in text}
    assert all(hit.score > 0 for hit in hits)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(["alpha", "beta", "gamma", "delta", "天気", "氣", "item"]), max_size=6
    ),
    st.integers(1, 150),
    st.booleans(),
)
def test_terms_of_no_weight_are_left_out_and_the_hits_stay_the_same(
    uneven: tuple[Index, str], asked: list[str], k: int, is_filtered: bool
):
    where = {"type": "eq", "key": "odd", "value": True} if is_filtered else None
    terms = query_terms(" ".join(asked))
    with uneven[0].view(uneven[1]) as view, pytest.MonkeyPatch.context() as patch:
        plain = view.lexical(" ".join(asked), k=k, where=where)
        patch.setattr("index.lexical.MANY_ROWS", 1)
        some = telling(view.connection, view.pk, terms, view.table.num_live) if terms else []
        assert some == [term for term in terms if term[0] not in ("alpha", "item")]
        short = view.lexical(" ".join(asked), k=k, where=where)
    assert len(short) == len(plain)
    np.testing.assert_allclose([h.score for h in short], [h.score for h in plain], atol=1e-4)
    scores = {hit.chunk_id: hit.score for hit in plain}
    last = plain[-1].score if plain else 0.0
    assert all(abs(scores.get(h.chunk_id, last) - h.score) < 1e-4 for h in short)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory):
    """120 documents: alpha and item are in at least half of them, the others in fewer."""
    with Index.open(tmp_path_factory.mktemp("uneven")) as index:
        store = make_store(index)
        documents = []
        for i in range(120):
            words = ["item"] * (1 + i % 3) + ["alpha"] * (i % 2) + ["beta"] * (i % 7 == 0)
            words += ["gamma"] * (i % 5 == 0) + ["天気"] * (i % 11 == 0) + [f"w{i}"] * (i % 4)
            text = " ".join(words)
            documents.append(make_document(str(i), text, size=999, attributes={"odd": i % 3 == 1}))
        commit(index, store, *documents)
        yield index, store.id


@settings(max_examples=300)
@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_every_query_inside_a_text_shares_a_term_with_it(before: str, query: str, after: str):
    terms = set(terms_of(f"{before} {query} {after}"))
    for term, is_prefix in query_terms(query):
        assert term in terms or (is_prefix and any(t.startswith(term) for t in terms))
    for term in terms:
        assert '"' not in term
        assert not term.isspace()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    query=st.text(max_size=60) | st.sampled_from(['"', "a OR", "NEAR(a", "x*", "^a", "-", "a:b"])
)
def test_lexical_search_never_raises_on_odd_queries(words: tuple[Index, str], query: str):
    index, store_id = words
    with index.view(store_id) as view:
        for hit in view.lexical(query, k=5):
            (passage,) = view.passages([hit.chunk_id], {})
            assert set(terms_of(passage.text)) or passage.text


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory):
    with Index.open(tmp_path_factory.mktemp("words")) as index:
        store = make_store(index)
        commit(index, store, *(make_document(str(i), t) for i, t in enumerate(sentences(20))))
        yield index, store.id


def test_very_long_queries_are_answered(words: tuple[Index, str]):
    with words[0].view(words[1]) as view:
        assert view.lexical(" ".join(["item", *(f"w{i}" for i in range(5000))]), k=3)


VALUES = st.sampled_from([1, 0, 2, 1.0, 2.5, -3, True, False, "a", "b", "1", "10", "é", "天"])
KEYS = st.sampled_from(["x", "y", 'q"$.', "document"])
RANGE_VALUES = VALUES.filter(lambda value: not isinstance(value, bool))
LEAVES = st.one_of(
    st.builds(
        lambda t, k, v: {"type": t, "key": k, "value": v},
        st.sampled_from(["eq", "ne"]),
        KEYS,
        VALUES,
    ),
    st.builds(
        lambda t, k, v: {"type": t, "key": k, "value": v},
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        KEYS,
        RANGE_VALUES,
    ),
    st.builds(
        lambda t, k, v: {"type": t, "key": k, "value": v},
        st.sampled_from(["in", "nin"]),
        KEYS,
        st.lists(VALUES, max_size=4),
    ),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda t, f: {"type": t, "filters": f},
        st.sampled_from(["and", "or"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


def kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def matches(where: Any, attributes: dict[str, Any]) -> bool:
    """Say in plain Python whether a document matches: the oracle."""
    if where["type"] in ("and", "or"):
        each = [matches(part, attributes) for part in where["filters"]]
        return all(each) if where["type"] == "and" else any(each)
    stored, value = attributes.get(where["key"]), where["value"]
    if where["type"] in ("ne", "nin"):
        positive = {"ne": "eq", "nin": "in"}[where["type"]]
        return not matches({**where, "type": positive}, attributes)
    if stored is None:
        return False
    if where["type"] == "in":
        return any(kind(v) == kind(stored) and v == stored for v in value)
    if kind(stored) != kind(value):
        return False
    compare = {
        "eq": operator.eq,
        "gt": operator.gt,
        "gte": operator.ge,
        "lt": operator.lt,
        "lte": operator.le,
    }[where["type"]]
    return bool(compare(stored, value))


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory):
    rng = np.random.default_rng(5)
    choices = [None, 1, 0, 2.5, 1.0, True, False, "a", "b", "1", "10", "天"]
    rows: dict[str, dict[str, Any]] = {}
    for name in ["a", "b", "1", "10", *(f"n{i}" for i in range(36))]:
        drawn = {key: choices[rng.integers(len(choices))] for key in ("x", "y", 'q"$.')}
        rows[name] = {key: value for key, value in drawn.items() if value is not None}
    with Index.open(tmp_path_factory.mktemp("filters")) as index:
        store = make_store(index)
        commit(
            index, store, *(make_document(n, f"word {n}", attributes=a) for n, a in rows.items())
        )
        yield index, store.id, rows


@settings(max_examples=200, deadline=None)
@given(where=FILTERS)
def test_filters_select_what_plain_python_selects(attributed: Any, where: Any):
    index, store_id, rows = attributed
    expected = {n for n, a in rows.items() if matches(where, {**a, "document": n})}
    with index.view(store_id) as view:
        assert {d.name for d in view.documents(where)} == expected
        for hits in (
            view.dense(vector_of("x"), k=99, where=where),
            view.lexical("word", k=99, where=where),
        ):
            found = [p.document for p in view.passages([h.chunk_id for h in hits], {})]
            assert set(found) == expected
            assert len(found) == len(expected)


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"type": "eq"},
        {"type": "eq", "key": "x"},
        {"type": "like", "key": "x", "value": 1},
        {"type": "and", "filters": []},
        {"type": "and", "filters": "x"},
        {"type": "or"},
        {"type": "eq", "key": 3, "value": 1},
        {"type": "eq", "key": "x", "value": None},
        {"type": "gt", "key": "x", "value": True},
        {"type": "in", "key": "x", "value": "abc"},
        {"type": "eq", "key": "x", "value": float("inf")},
        {"type": "eq", "key": "x", "value": 2**70},
        {"type": "eq", "key": "x", "value": 1, "more": 2},
        "eq",
        {"type": "or", "filters": [{"type": "eq", "key": "x", "value": 1}] * 200},
    ],
)
def test_a_malformed_filter_is_refused(attributed: Any, where: Any):
    index, store_id, _ = attributed
    with index.view(store_id) as view, pytest.raises(InvalidInput) as caught:
        view.chunk_ids(where)
    assert caught.value.message


def test_passages_come_in_the_order_asked_with_context_and_exact_words(index: Index):
    text = "Table 1: sizes\n| a | b |\n| 1 | 2 |\n| 3 | 4 |\n"
    chunks = [
        Chunk(0, 33, 9, ("Top", "Sizes"), page=2),
        Chunk(34, len(text), 4, ("Top", "Sizes"), 3, header=Span(15, 24), caption=Span(0, 14)),
    ]
    document = NewDocument(
        "t.md",
        "0" * 64,
        9,
        ParsedText(text, "markdown", "text/markdown"),
        chunks,
        np.stack([vector_of("a"), vector_of("b")]),
        {"year": 2026},
    )
    store = make_store(index)
    commit(index, store, document)
    with index.view(store.id) as view:
        second, first = view.passages([2, 1], {2: {"dense": 0.5}})
        assert (second.text, second.scores, second.page) == (text[34:], {"dense": 0.5}, 3)
        assert second.context == "Top > Sizes\nTable 1: sizes\n| a | b |"
        assert (first.context, first.headings) == ("Top > Sizes", ("Top", "Sizes"))
        assert first.attributes == {"year": 2026}
        assert [h.chunk_id for h in view.lexical("sizes 3", k=5)] == [2, 1]
        np.testing.assert_array_equal(view.vectors([2, 1]), document.vectors[::-1])
        with pytest.raises(NotFound):
            view.passages([3], {})
        with pytest.raises(NotFound):
            view.vectors([3])


def test_chunks_of_another_store_are_not_found_and_its_words_do_not_move_scores(index: Index):
    mine, other = make_store(index, "s", tenant="t"), make_store(index, "s", tenant="u")
    commit(index, mine, make_document("a", "red apple"), make_document("b", "green pear"))
    with index.view(mine.id) as view:
        before = view.lexical("red pear", k=9)
    commit(index, other, *(make_document(str(i), f"red thing {i}") for i in range(50)))
    with index.view(mine.id) as view:
        assert view.lexical("red pear", k=9) == before
        with pytest.raises(NotFound):
            view.passages([3], {})
    for store in (other.id, "vs_unknown"):
        with pytest.raises(NotFound) as caught:
            index.get_store(store, tenant="t")
        assert caught.value.message == f"no vector store {store!r}"


def test_wrong_queries_are_refused(words: tuple[Index, str]):
    with words[0].view(words[1]) as view:
        for vector in (np.ones(3, np.float32), np.full(DIMENSION, np.nan, np.float32)):
            with pytest.raises(InvalidInput):
                view.dense(vector, k=1)
        with pytest.raises(InvalidInput):
            view.dense(vector_of("x"), k=0)
        with pytest.raises(InvalidInput):
            view.lexical("x", k=0)


def test_an_empty_store_answers_with_nothing(index: Index):
    store = make_store(index)
    with index.view(store.id) as view:
        assert view.dense(vector_of("x"), k=5) == []
        assert view.lexical("x", k=5) == []
        assert view.passages([], {}) == []
        assert view.dense(vector_of("x"), k=5, where={"type": "eq", "key": "a", "value": 1}) == []


def test_attributes_can_be_changed_and_filter_at_once(index: Index):
    store = make_store(index)
    commit(index, store, make_document("a", "words", attributes={"x": 1}))
    record = index.update_document(store.id, "a", attributes={"x": "new"})
    assert record.attributes == {"x": "new"}
    with index.view(store.id) as view:
        where = {"type": "eq", "key": "x", "value": "new"}
        assert len(view.dense(vector_of("q"), k=5, where=where)) == 1


def test_disk_stays_within_twice_vectors_and_text_at_240_short_passages(data_dir: Path):
    rng = np.random.default_rng(0)
    vocabulary = [
        "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(2, 10)))
        for _ in range(4000)
    ]
    weights = 1 / np.arange(1, 4001)
    with Index.open(data_dir) as index:
        store = index.create_store(
            "s",
            tenant="t",
            embedder="e",
            embedder_fingerprint=FINGERPRINT,
            dimension=384,
            chunking={},
        )
        raw = 0
        for start in range(0, 240, 16):
            batch = []
            for i in range(start, start + 16):
                text = " ".join(rng.choice(vocabulary, 130, p=weights / weights.sum()))
                batch.append(make_document(f"passage-{i}.txt", text, size=10_000, dimension=384))
                raw += len(text.encode()) + 384 * 4
            commit(index, store, *batch)
        assert index.disk_usage()["total"] <= 2 * raw
    used = sum(path.stat().st_size for path in data_dir.rglob("*") if path.is_file())
    blocks = sum(path.stat().st_blocks * 512 for path in data_dir.rglob("*"))
    print(f"raw {raw}, used {used} ({used / raw:.2f}), blocks {blocks} ({blocks / raw:.2f})")
    assert max(used, blocks) <= 2 * raw
