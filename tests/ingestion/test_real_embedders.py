"""With the starter embedders: sizes hold in their own tokens, needles and cells are found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backbone import Embedder, ModelCache
from index import Index
from ingestion.chunking import ChunkSettings, split
from ingestion.parsing import ParseLimits, Parser
from ingestion.pipeline import Pipeline
from ingestion.sources import SourceFile

pytestmark = pytest.mark.slow
MODELS = Path(os.environ.get("GRAFT_MODELS_DIR", "~/.cache/graft/models")).expanduser()


@pytest.fixture(scope="module", params=["minilm", "wordllama", "e5-small"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return Embedder.load(request.param, ModelCache(MODELS), threads=1)


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    with Parser(ParseLimits()) as parser:
        yield parser


def test_m3_no_chunk_of_real_documents_is_too_long_for_its_embedder(
    embedder: Embedder, parser: Parser, shared_data: Path
) -> None:
    peps = sorted((shared_data / "peps-2025-2026").glob("*.rst"))[:12]
    laws = sorted((shared_data / "zh-laws-2024-2025").rglob("*.md"))[:6]
    pages = [shared_data / "hard-files" / "markitdown" / "test_wikipedia.html"]
    for path in [*peps, *laws, *pages]:
        parsed = parser.parse(path, path.name).parsed
        for size in (64, 256, 800):
            settings = ChunkSettings(size, size // 8)
            for chunk in split(parsed, settings, embedder):
                words = chunk.embedded_text(parsed.text)
                if embedder.max_tokens < 2 * size:
                    assert embedder.count_tokens(words) <= embedder.max_tokens
                assert chunk.num_tokens <= size


def test_one_and_three_quarter_megabytes_are_cut_within_seconds(
    embedder: Embedder, parser: Parser, shared_data: Path
) -> None:
    paths = sorted((shared_data / "peps-2025-2026").glob("*.rst"))
    texts = [parser.parse(path, path.name).parsed for path in paths]
    begun = time.process_time()
    num = sum(len(split(parsed, ChunkSettings(), embedder)) for parsed in texts)
    assert num > 1000
    assert time.process_time() - begun < 30


class Way:
    """A store with a pipeline into it and a dense search out of it."""

    def __init__(self, folder: Path, embedder: Embedder, size: int) -> None:
        self.folder, self.embedder = folder, embedder
        self.index = Index.open(folder / "data")
        self.pipeline = Pipeline(self.index, embedder)
        self.store = self.index.create_store(
            "s",
            tenant="t",
            embedder=embedder.name,
            embedder_fingerprint=embedder.fingerprint,
            dimension=embedder.dimension,
            chunking={"size": size, "overlap": 0},
        )

    def add(self, name: str, words: str) -> None:
        path = self.folder / name
        path.write_text(words, "utf-8")
        outcome = self.pipeline.ingest(self.store.id, [SourceFile(name, path=path)])[0]
        assert outcome.status == "added", outcome.error

    def best(self, question: str) -> str:
        vector = self.embedder.encode_queries([question])[0]
        with self.index.view(self.store.id) as view:
            hits = view.dense(vector, k=1)
            passage = view.passages([hits[0].chunk_id], {})[0]
        return f"{passage.context}\n{passage.text}"


def make(tmp_path: Path, embedder: Embedder, size: int) -> Iterator[Way]:
    way = Way(tmp_path, embedder, size)
    yield way
    way.pipeline.close()
    way.index.close()


@pytest.fixture
def way(tmp_path: Path, embedder: Embedder) -> Iterator[Way]:
    yield from make(tmp_path, embedder, 800)


@pytest.fixture
def small_way(tmp_path: Path, embedder: Embedder) -> Iterator[Way]:
    yield from make(tmp_path, embedder, 64)


def test_m3_a_needle_in_the_last_sentence_of_800_tokens_is_found(way: Way) -> None:
    if way.embedder.name == "wordllama":
        pytest.skip("a static embedder has no limit to run into")
    talk = "The committee spoke at length about the weather and about lunch. "
    way.add("talk.txt", talk * 60 + "The spare key of the observatory hangs behind the clock.")
    way.add("other.txt", "Clouds gather over the hills. " * 90)
    assert "behind the clock" in way.best("Where is the observatory's spare key?")


CITIES = (
    "Oslo Bergen Trondheim Stavanger Tromso Narvik Bodo Molde Hamar Drammen Larvik Arendal Mandal "
    "Farsund Flekkefjord Egersund Haugesund Odda Voss Forde Floro Volda Orsta Alesund Namsos "
    "Kristiansund Mosjoen Rana Harstad Alta"
)


def test_p3_a_question_about_one_cell_and_the_caption_find_the_table(small_way: Way) -> None:
    rows = [f"| {city} | {1000 + 37 * i} | {3 + i} |" for i, city in enumerate(CITIES.split())]
    caption = "Table 2: Ferries and harbours by city"
    table = "\n".join(["| city | number of ferries | harbours |", "| --- | --- | --- |", *rows])
    filler = "\n\n".join(f"Paragraph {i} is about cooking soup and bread." for i in range(40))
    small_way.add("report.md", f"# Report\n\n{filler}\n\n{caption}\n\n{table}\n\n{filler}\n")
    found = small_way.best("How many ferries does Flekkefjord have?")
    assert "| Flekkefjord | 1518 | 17 |" in found
    assert "number of ferries" in found
    assert "Ferries and harbours" in small_way.best("table of ferries and harbours by city")
