"""Migrations make what the code expects, take no logging over, and refuse a newer folder."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import index as package
from index import ConfigError, Index
from index.schema import HEAD, metadata
from tests.store.making import commit, make_document, make_store


def test_migrations_make_exactly_the_tables_of_the_schema(index: Index):
    def ours(_object: object, name: str, kind: str, *_rest: object) -> bool:
        return not (kind == "table" and name.startswith("lexical_"))

    make_store(index)
    with index._core.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours})
        assert compare_metadata(context, metadata) == []


def test_the_head_that_the_code_names_is_the_last_migration():
    folder = Path(package.__file__).with_name("migrations")
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_opening_takes_no_logging_over(data_dir: Path):
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.getLogger("sqlalchemy").disabled)
    with Index.open(data_dir):
        pass
    assert (list(root.handlers), root.level, logging.getLogger("sqlalchemy").disabled) == before


def test_a_folder_of_a_newer_version_is_refused(data_dir: Path):
    with Index.open(data_dir):
        pass
    raw = sqlite3.connect(data_dir / "catalogue.sqlite3")
    raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.commit()
    raw.close()
    with pytest.raises(ConfigError, match="install the newer Graft"):
        Index.open(data_dir)


def test_terms_made_by_an_older_rule_are_made_again_at_start(data_dir: Path):
    with Index.open(data_dir) as index:
        store = make_store(index)
        commit(index, store, make_document("a", "find me"))
    raw = sqlite3.connect(data_dir / "catalogue.sqlite3")
    raw.execute("INSERT INTO lexical_1(lexical_1) VALUES ('delete-all')")
    raw.execute("UPDATE stores SET lexical = 'older'")
    raw.commit()
    raw.close()
    with Index.open(data_dir) as index, index.view(store.id) as view:
        assert len(view.lexical("find", k=5)) == 1


def test_the_public_surface_is_what_all_names():
    assert sorted(package.__all__) == package.__all__ or len(set(package.__all__)) == len(
        package.__all__
    )
    for name in package.__all__:
        assert hasattr(package, name)


def test_a_folder_with_odd_characters_in_its_name_works(tmp_path: Path):
    with Index.open(tmp_path / "50% of ü?#&'") as index:
        assert index.check() == []
