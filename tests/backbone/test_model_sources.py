"""Names and sources: what each means, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backbone import STARTER_MODELS, resolve
from backbone.wheels import CODE_SUFFIXES
from index.errors import ModelError


def test_an_alias_and_its_pinned_source_are_the_same_model() -> None:
    for alias, recipe in STARTER_MODELS.items():
        by_source = resolve(f"pypi:{recipe.parts[0].package}=={recipe.parts[0].version}")
        assert resolve(alias) == by_source
        assert by_source.recipe is recipe


def test_every_file_of_the_starter_set_is_pinned_and_none_is_code() -> None:
    for recipe in STARTER_MODELS.values():
        for part in recipe.parts:
            for name, sha256 in part.members.values():
                assert len(sha256) == 64
                assert not name.endswith(CODE_SUFFIXES)


def test_an_unlisted_wheel_without_a_hash_is_refused_with_the_form_that_works() -> None:
    with pytest.raises(ModelError, match="#sha256="):
        resolve("pypi:somebody==1.0")
    source = resolve("pypi:somebody==1.0#sha256=" + "a" * 64)
    assert (source.location, source.version, source.sha256) == ("somebody", "1.0", "a" * 64)


def test_an_unknown_name_lists_what_exists() -> None:
    with pytest.raises(ModelError, match="smollm2-135m"):
        resolve("no-such-model")


def test_hub_and_folder_sources_are_recognised(tmp_path: Path) -> None:
    assert resolve("hf:org/name@v1.2").version == "v1.2"
    assert resolve("hf:org/name").version == "main"
    assert resolve(str(tmp_path)).scheme == "folder"
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert resolve(str(tmp_path / "m.gguf")).scheme == "gguf"


@given(st.text(max_size=60))
def test_no_text_becomes_a_path_outside_the_cache(text: str) -> None:
    for prefix in ("pypi:", "hf:", ""):
        try:
            key = resolve(prefix + text).key
        except ModelError:
            continue
        assert "/" not in key
        assert ".." not in key
