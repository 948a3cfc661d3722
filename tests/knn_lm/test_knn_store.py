"""Token memories through the real store: adds, replacements and deletes leave no trace."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from backbone import tiny_model
from decoding import Engine, Request, StepView
from index import Index
from index.records import Chunk, NewDocument, ParsedText, StoreRecord
from knn_lm import KnnSettings, KnnShaper, TokenMemory, build_arrays

MODEL = tiny_model(vocab_size=400)
PROMPT = tuple(MODEL.encode("and the other in the"))
TEXTS = {
    f"{i}.md": f"{start} the other and the in on {i} 猫 {start[::-1]} " * 4
    for i, start in enumerate(("one", "in", "and er", "is at", "es", "ou"))
}


def _open_store(index: Index) -> StoreRecord:
    return index.create_store(
        "s", tenant="t", embedder="e", embedder_fingerprint="e1", dimension=2, chunking={}
    )


def _put(index: Index, store: StoreRecord, name: str, text: str) -> None:
    document = NewDocument(
        name=name,
        version=hashlib.sha256(text.encode()).hexdigest(),
        num_bytes=len(text.encode()),
        parsed=ParsedText(text, "plain", "text/plain"),
        chunks=[Chunk(0, len(text), 1)],
        vectors=np.array([[1.0, 0.0]], dtype=np.float32),
    )
    index.commit_documents(store.id, [document], embedder_fingerprint="e1")
    for record in index.pending_memory(store.id, MODEL.fingerprint):
        arrays = build_arrays(MODEL, index.text_of(record))
        assert index.commit_memory(record, MODEL.fingerprint, arrays)


def _load(index: Index, store: StoreRecord) -> TokenMemory:
    view = index.memory(store.id, MODEL.fingerprint)
    return TokenMemory(view, fingerprint=MODEL.fingerprint, key_dim=MODEL.key_dim)


def _target(memory: TokenMemory) -> torch.Tensor:
    forward = MODEL.forward(torch.tensor([PROMPT]), cache=None)
    assert forward.logits is not None
    valid = torch.ones(1, len(PROMPT), dtype=torch.bool)
    view = StepView((PROMPT[:1],), forward.logits, forward.keys, valid, (PROMPT[1:],))
    state = KnnShaper(memory, KnnSettings(lam=0.5, k=8)).open(Request(PROMPT))
    return state.shape(forward.logits[0].log_softmax(-1), view, 0)


@pytest.mark.parametrize("seed", range(4))
def test_t10_any_adds_replacements_and_deletes_give_the_target_of_a_fresh_store(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    alive: dict[str, str] = {}
    with Index.open(tmp_path / "used") as index, Index.open(tmp_path / "fresh") as fresh:
        store = _open_store(index)
        for _ in range(14):
            name = rng.choice(list(TEXTS))
            if name in alive and rng.random() < 0.5:
                index.delete_documents(store.id, [name])
                del alive[name]
            else:
                alive[name] = TEXTS[name] + rng.choice(["", "or more", "and less"])
                _put(index, store, name, alive[name])
        used = _load(index, store)
        clean = _open_store(fresh)
        for name in rng.sample(list(alive), len(alive)):
            _put(fresh, clean, name, alive[name])
        new = _load(fresh, clean)
        assert alive
        assert len(used) == len(new)
        assert used.scale == pytest.approx(new.scale, rel=1e-6)
        assert torch.allclose(_target(used), _target(new), atol=1e-5)


def test_d1_a_deleted_document_is_gone_from_the_target_and_from_the_sources(
    tmp_path: Path,
) -> None:
    with Index.open(tmp_path) as index, Engine(MODEL) as engine:
        store = _open_store(index)
        for name in ("0.md", "1.md"):
            _put(index, store, name, TEXTS[name])

        def sources() -> set[str]:
            shaper = KnnShaper(_load(index, store), KnnSettings(lam=1.0))
            request = Request(PROMPT, max_tokens=12, ignore_eos=True, shapers=(shaper,))
            events = engine.submit(request).result(60).tokens
            return {source.document for event in events for source in event.provenance}

        before = _target(_load(index, store))
        assert sources() == {"0.md", "1.md"}
        index.delete_documents(store.id, ["1.md"])
        assert sources() == {"0.md"}
        assert not torch.allclose(_target(_load(index, store)), before, atol=1e-3)


def test_t8_a_store_remembers_for_each_backbone_apart(tmp_path: Path) -> None:
    with Index.open(tmp_path) as index:
        store = _open_store(index)
        _put(index, store, "0.md", TEXTS["0.md"])
        assert len(_load(index, store)) > 0
        assert len(index.memory(store.id, "another").values) == 0
        record = index.find_document(store.id, "0.md")
        assert record is not None
        assert record.memories == (MODEL.fingerprint,)
