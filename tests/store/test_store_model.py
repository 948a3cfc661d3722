"""The store against a dictionary: any sequence of acts, reopened at any moment."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from index import Index
from tests.store.making import (
    BACKBONE,
    assert_serves,
    commit,
    make_document,
    make_memory,
    make_store,
    remember,
)

NAMES = st.sampled_from([f"{c}.md" for c in "abcdefgh"])
TEXTS = st.text(st.sampled_from("ab 国際。\n"), min_size=1, max_size=90)


class StoreMachine(RuleBasedStateMachine):
    """Two open indexes of one folder take turns; a dict says what they must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.indexes = [Index.open(Path(self.folder.name)) for _ in range(2)]
        self.store = make_store(self.indexes[0])
        self.texts: dict[str, str] = {}
        self.remembered: set[str] = set()

    @rule(new=st.dictionaries(NAMES, TEXTS, min_size=1, max_size=3), which=st.integers(0, 1))
    def put(self, new: dict[str, str], which: int) -> None:
        tagged = {name: f"{name} {text}" for name, text in new.items()}
        commit(self.indexes[which], self.store, *(make_document(n, t) for n, t in tagged.items()))
        self.remembered -= {n for n, t in tagged.items() if self.texts.get(n) != t}
        self.texts |= tagged

    @rule(names=st.sets(NAMES, min_size=1, max_size=4), which=st.integers(0, 1))
    def delete(self, names: set[str], which: int) -> None:
        listed = sorted(names)
        deleted = self.indexes[which].delete_documents(self.store.id, listed)
        assert deleted == [name for name in listed if name in self.texts]
        for name in deleted:
            del self.texts[name]
        self.remembered -= names

    @rule(which=st.integers(0, 1))
    def build_memory(self, which: int) -> None:
        remember(self.indexes[which], self.store)
        self.remembered = set(self.texts)

    @rule(which=st.integers(0, 1))
    def compact(self, which: int) -> None:
        self.indexes[which].compact()

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.indexes[which].close()
        self.indexes[which] = Index.open(Path(self.folder.name))

    @precondition(lambda self: self.texts)
    @invariant()
    def words_are_found(self) -> None:
        name = min(self.texts)
        with self.indexes[0].view(self.store.id) as view:
            where = {"type": "eq", "key": "document", "value": name}
            hits = view.lexical(name, k=99, where=where)
            assert {p.document for p in view.passages([h.chunk_id for h in hits], {})} == {name}

    @invariant()
    def both_serve_the_dictionary(self) -> None:
        for index in self.indexes:
            assert_serves(index, self.store, self.texts)
            memory = index.memory(self.store.id, BACKBONE)
            assert {d.name for d in memory.documents} == self.remembered
            assert memory.pending == len(self.texts) - len(self.remembered)
            for number, document in enumerate(memory.documents):
                expected = make_memory(self.texts[document.name])
                mine = memory.document_of == number
                np.testing.assert_array_equal(memory.values[mine], expected.tokens[1:])
                np.testing.assert_array_equal(memory.keys[mine], expected.keys)

    def teardown(self) -> None:
        assert self.indexes[0].check() == []
        for index in self.indexes:
            index.close()
        self.folder.cleanup()


TestStoreAgainstADictionary = StoreMachine.TestCase
TestStoreAgainstADictionary.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
