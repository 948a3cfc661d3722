"""Exact search over a token memory: FAISS and numpy are its oracles; sizes; foreign memories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import faiss
import numpy as np
import pytest
import torch

from backbone import tiny_model
from index.errors import Damaged, FingerprintMismatch, InvalidInput
from index.records import MemoryView
from knn_lm import TokenMemory

MakeView = Callable[..., MemoryView]
MODEL = tiny_model(vocab_size=400)
TEXTS = {"a.md": "the other and the in on " * 20, "b.md": "one 猫 is not the other é " * 20}


def _load(view: MemoryView) -> TokenMemory:
    return TokenMemory(view, fingerprint=MODEL.fingerprint, key_dim=view.keys.shape[1])


def _random_view(base: MemoryView, num: int, dim: int = 24, seed: int = 0) -> MemoryView:
    """Make a memory of `num` random keys, some of them twice, with a great common part."""
    rng = np.random.default_rng(seed)
    keys = (rng.standard_normal((num, dim)) + 30).astype(np.float16)
    keys[num // 2 : num // 2 + num // 10] = keys[: num // 10]
    return replace(
        base,
        keys=keys,
        values=rng.integers(0, 400, num),
        starts=np.arange(num),
        ends=np.arange(num) + 1,
        document_of=np.zeros(num, dtype=np.int64),
    )


@pytest.fixture(scope="module")
def view(make_view: MakeView) -> MemoryView:
    return make_view(MODEL, TEXTS)


@pytest.mark.parametrize("num", [1, 10, 500, 5000])
def test_t5_neighbours_and_squared_distances_are_those_of_faiss(view: MemoryView, num: int) -> None:
    random = _random_view(view, num)
    memory = _load(random)
    queries = torch.randn(9, 24, generator=torch.Generator().manual_seed(1)) + 30
    oracle = faiss.IndexFlatL2(24)
    oracle.add(random.keys.astype(np.float32))
    k = min(num, 16)
    expected, _ = oracle.search(queries.numpy(), k)
    found = memory.search(queries, k)
    assert np.allclose(found.distances.numpy(), expected, rtol=1e-3, atol=1e-2)
    recomputed = (random.keys.astype(np.float64)[found.entries] - queries.numpy()[:, None]) ** 2
    assert np.allclose(found.distances.numpy(), recomputed.sum(-1), rtol=1e-5)
    assert bool((found.distances.diff(dim=-1) >= 0).all())
    brute = ((random.keys.astype(np.float64)[None] - queries.numpy()[:, None]) ** 2).sum(-1)
    assert np.allclose(np.sort(brute)[:, :k], found.distances.numpy(), rtol=1e-5)


@pytest.mark.parametrize("num", [0, 1, 10, 500])
@pytest.mark.parametrize("k", [1, 16, 600])
def test_t3_any_k_and_any_size_work_and_what_is_missing_is_marked(
    view: MemoryView, num: int, k: int
) -> None:
    memory = _load(_random_view(view, num))
    found = memory.search(torch.randn(3, 24) + 30, k)
    assert found.entries.shape == found.distances.shape == (3, k)
    there = min(k, num)
    assert bool((found.entries[:, :there] >= 0).all())
    assert all(len(set(row)) == there for row in found.entries[:, :there].tolist())
    assert bool((found.entries[:, there:] == -1).all())
    assert bool(found.distances[:, there:].isinf().all())
    assert len(memory) == num
    assert memory.scale > 0


def test_t2_batched_search_equals_one_by_one(view: MemoryView) -> None:
    memory = _load(_random_view(view, 3000))
    queries = torch.randn(70, 24) + 30
    together = memory.search(queries, 20)
    for i in range(70):
        alone = memory.search(queries[i : i + 1], 20)
        assert torch.equal(alone.entries[0], together.entries[i])
        assert torch.equal(alone.distances[0], together.distances[i])


def _tied_view(base: MemoryView, num: int) -> MemoryView:
    """Make a memory whose first `num` entries have one key; a quarter of them one value."""
    random = _random_view(base, num + 200)
    keys, values = random.keys.copy(), np.arange(num + 200)
    keys[:num] = keys[0]
    values[: num // 4] = 399
    return replace(random, keys=keys, values=values)


@pytest.mark.parametrize(("num", "k"), [(79, 8), (150, 1), (20, 8), (150, 32)])
def test_t10_more_equal_keys_than_neighbours_give_one_distribution_in_any_order(
    view: MemoryView, num: int, k: int
) -> None:
    tied = _tied_view(view, num)
    query = torch.from_numpy(tied.keys[:1].astype(np.float32))
    queries = torch.cat([query, query + 0.25, torch.randn(3, 24) + 30])
    expected = _load(tied)
    found = expected.search(queries, k)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(num + 200)
        memory = _load(replace(tied, keys=tied.keys[order], values=tied.values[order]))
        other = memory.search(queries, k)
        assert torch.equal(other.distances, found.distances)
        assert torch.equal(memory.values[other.entries], expected.values[found.entries])
    assert found.entries[0].unique().numel() == k
    share = float((expected.values[found.entries[0]] == 399).float().mean())
    assert abs(share - (num // 4) / num) <= 1 / k


def test_a_search_in_several_blocks_equals_one_in_one_block(
    view: MemoryView, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = _load(_random_view(view, 500))
    queries = torch.randn(10, 24) + 30
    whole = memory.search(queries, 5)
    monkeypatch.setattr("knn_lm.memory._MAX_PRODUCTS", 1500)
    blocks = memory.search(queries, 5)
    assert torch.equal(whole.entries, blocks.entries)


def test_t1_every_stored_key_finds_its_own_entry(view: MemoryView) -> None:
    memory = _load(view)
    found = memory.search(torch.from_numpy(view.keys.copy()).float(), 1)
    assert bool((found.distances == 0).all())
    own = torch.from_numpy(view.keys.copy())[found.entries[:, 0]]
    assert torch.equal(own, torch.from_numpy(view.keys.copy()))


@pytest.mark.parametrize("num", [3, 500, 2000])
def test_the_scale_is_the_median_nearest_distance_whatever_the_order(
    view: MemoryView, num: int
) -> None:
    random = _random_view(view, num)
    scale = _load(random).scale
    order = np.random.default_rng(2).permutation(num)
    assert _load(replace(random, keys=random.keys[order])).scale == scale
    keys = torch.from_numpy(random.keys).double()
    distances = torch.cdist(keys, keys).square()
    nearest = distances.masked_fill(distances < 1e-9, torch.inf).amin(dim=-1)
    assert scale == pytest.approx(float(nearest.median()), rel=0.1)


@pytest.mark.parametrize("num_copies", [1, 5])
def test_the_scale_does_not_collapse_where_near_copies_of_documents_are_stored(
    view: MemoryView, num_copies: int
) -> None:
    num = 300
    alone = _random_view(view, num)
    rng = np.random.default_rng(7)
    copies = [alone.keys + rng.standard_normal((num, 24)) * 0.02 for _ in range(num_copies)]
    count = num_copies + 1
    documents = tuple(replace(view.documents[0], id=i, name=f"{i}.md") for i in range(count))
    stored = replace(
        alone,
        keys=np.concatenate([alone.keys, *copies]).astype(np.float16),
        values=np.tile(alone.values, count),
        starts=np.tile(alone.starts, count),
        ends=np.tile(alone.ends, count),
        document_of=np.repeat(np.arange(count), num),
        documents=documents,
    )
    assert _load(stored).scale == pytest.approx(_load(alone).scale, rel=0.1)


def test_the_scale_of_a_store_of_exact_copies_is_that_of_one_of_them(make_view: MakeView) -> None:
    text = "the other and the in on one is not 猫 é mat dog cat sat who why when " * 2
    alone = _load(make_view(MODEL, {"a.md": text})).scale
    both = _load(make_view(MODEL, {"a.md": text, "b.md": text})).scale
    assert both == pytest.approx(alone, rel=1e-4)


def test_the_scale_of_equal_keys_or_of_one_is_one(view: MemoryView) -> None:
    random = _random_view(view, 40)
    same = replace(random, keys=np.repeat(random.keys[:1], 40, axis=0))
    assert _load(same).scale == _load(_random_view(view, 1)).scale == 1.0


def test_documents_and_spans_of_entries_are_those_of_the_text(view: MemoryView) -> None:
    memory = _load(view)
    for entry in range(0, len(memory), 7):
        document, span = memory.document(entry), memory.span(entry)
        words = TEXTS[document.name][span.start : span.end]
        assert MODEL.decode([int(memory.values[entry])]) in (words, "\ufffd")


def test_t8_a_memory_of_another_backbone_is_refused(view: MemoryView) -> None:
    for other in (tiny_model(vocab_size=400, seed=1), tiny_model(vocab_size=400, kind="qwen2")):
        assert other.key_dim == MODEL.key_dim
        with pytest.raises(FingerprintMismatch, match="graft ingest"):
            TokenMemory(view, fingerprint=other.fingerprint, key_dim=other.key_dim)
    with pytest.raises(FingerprintMismatch, match="width 99"):
        TokenMemory(view, fingerprint=MODEL.fingerprint, key_dim=99)
    mixed = replace(view, documents=(view.documents[0], replace(view.documents[1], memories=())))
    with pytest.raises(FingerprintMismatch, match=r"b\.md"):
        _load(mixed)


def test_a_document_without_entries_yet_is_no_stranger(view: MemoryView) -> None:
    pending = replace(view.documents[0], id=9, name="pending.md", memories=())
    memory = _load(replace(view, documents=(*view.documents, pending)))
    assert len(memory) == len(view.values)


def test_arrays_that_do_not_fit_together_are_damage(view: MemoryView) -> None:
    poisoned = view.keys.copy()
    poisoned[3, 0] = np.nan
    for change in (
        {"keys": view.keys[:-1]},
        {"keys": poisoned},
        {"values": view.values - 10**6},
        {"document_of": view.document_of + 1},
    ):
        with pytest.raises(Damaged):
            _load(replace(view, **change))


def test_queries_of_another_shape_are_refused(view: MemoryView) -> None:
    memory = _load(view)
    for queries, k in ((torch.zeros(3, 5), 4), (torch.zeros(32), 4), (torch.zeros(3, 32), 0)):
        with pytest.raises(InvalidInput, match="queries"):
            memory.search(queries, k)
