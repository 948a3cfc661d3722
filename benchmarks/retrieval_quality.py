"""Measure how often the right passage, and the right sentence, is found: XQuAD, three languages.

In: XQuAD's contexts, each a document, and all their questions. Out: R@1 and R@5 by language,
embedder and way to search; then, over the articles that no weight was fitted on (odd ones), how
often an extractive answer contains the gold answer, and how well the answerability score tells a
question asked of its own article from one asked of all others. Knows nothing of speed.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backbone import Embedder, ModelCache
from index import Index, NewDocument, ParsedText, Passage, content_sha
from index.records import FloatArray
from ingestion import ChunkSettings, split
from reporting import Measured, MissingData, corpus, models_folder, say
from retriever import ABSTAIN_BELOW, RetrievalSettings, Retriever, answer

EMBEDDERS = ("wordllama", "minilm", "e5-small")
LANGUAGES = ("en", "zh", "de")
ANSWER_EMBEDDER, ANSWER_LANGUAGES = "e5-small", ("en", "zh")
MODES = ("dense", "lexical", "hybrid")
SEED = 7


@dataclass(frozen=True, slots=True)
class Item:
    """A question, its document, its gold answer and the number of its article."""

    question: str
    document: str
    gold: str
    article: int


def read(language: str) -> tuple[dict[str, tuple[int, str]], list[Item]]:
    """Give documents (name → article, text) and questions of one language."""
    path = corpus("xquad") / f"xquad.{language}.json"
    if not path.is_file():
        raise MissingData(f"XQuAD has no file {path.name!r}")
    documents: dict[str, tuple[int, str]] = {}
    items: list[Item] = []
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            name = f"context-{len(documents):04}.txt"
            documents[name] = (number, paragraph["context"])
            items += [
                Item(qa["question"], name, qa["answers"][0]["text"], number)
                for qa in paragraph["qas"]
            ]
    return documents, items


class Remembering:
    """An embedder that embeds no question twice; all else is the embedder's own."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, FloatArray] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._embedder, name)

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Embed what is new, remember all."""
        new = [text for text in texts if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.encode_queries(new), strict=True))
        return np.stack([self._known[text] for text in texts])


class Bench:
    """One language under one embedder, in a store of its own."""

    def __init__(
        self, folder: Path, embedder: Embedder, documents: Mapping[str, tuple[int, str]]
    ) -> None:
        self.index = Index.open(folder)
        self.embedder: Embedder = Remembering(embedder)  # type: ignore[assignment]
        chunking = ChunkSettings()
        self.store = self.index.create_store(
            "bench", tenant="default", embedder=embedder.name,
            embedder_fingerprint=embedder.fingerprint, dimension=embedder.dimension,
            chunking={"size": chunking.size, "overlap": chunking.overlap,
                      "splitter": chunking.splitter},
        )  # fmt: skip
        made = [self._document(name, *documents[name], chunking) for name in documents]
        self.index.commit_documents(self.store.id, made, embedder_fingerprint=embedder.fingerprint)
        self.retriever = Retriever(self.index, self.embedder)

    def _document(self, name: str, article: int, text: str, chunking: ChunkSettings) -> NewDocument:
        parsed = ParsedText(text, "plain", "text/plain")
        chunks = split(parsed, chunking, self.embedder)
        vectors = self.embedder.encode_passages([chunk.embedded_text(text) for chunk in chunks])
        return NewDocument(
            name, content_sha(text), len(text.encode()), parsed, chunks, vectors,
            attributes={"article": article},
        )  # fmt: skip

    def found(self, question: str, settings: RetrievalSettings) -> list[Passage]:
        """Search the store."""
        return self.retriever.search(question, [self.store.id], settings)

    def text_of(self, passage: Passage) -> str:
        """Give the text that a passage is a span of."""
        return self.index.text(passage.store_id, passage.document)


def recalls(bench: Bench, items: Sequence[Item]) -> dict[str, dict[str, float]]:
    """Give R@1 and R@5 by mode: the gold document is among the first distinct documents."""
    table: dict[str, dict[str, float]] = {}
    for mode in MODES:
        settings = RetrievalSettings(k=10, mode=mode)  # type: ignore[arg-type]
        at_1 = at_5 = 0
        for item in items:
            names = list(dict.fromkeys(p.document for p in bench.found(item.question, settings)))
            at_1 += names[:1] == [item.document]
            at_5 += item.document in names[:5]
        table[mode] = {
            "recall_at_1": round(at_1 / len(items), 4),
            "recall_at_5": round(at_5 / len(items), 4),
        }
    return table


def folded(text: str) -> str:
    """Fold case and white space, so that an answer is compared by its words."""
    return " ".join(text.casefold().split())


def answers(bench: Bench, items: Sequence[Item]) -> dict[str, float]:
    """Answer extractively from the top 5; with and without the article that knows the answer."""
    contains = retrieved = num_sentences = 0
    own: list[float] = []
    other: list[float] = []
    for item in items:
        found = bench.found(item.question, RetrievalSettings(k=5))
        given = answer(item.question, found, bench.text_of, embedder=bench.embedder)
        assert all(citation.verified for citation in given.citations)
        own.append(given.answerability)
        if item.document in {passage.document for passage in found}:
            retrieved += 1
            contains += folded(item.gold) in folded(given.answer)
            num_sentences += len(given.citations)
        where = {"type": "ne", "key": "article", "value": item.article}
        without = bench.found(item.question, RetrievalSettings(k=5, where=where))
        other.append(
            answer(item.question, without, bench.text_of, embedder=bench.embedder).answerability
        )
    ranks = np.asarray(own)[:, None] - np.asarray(other)[None, :]
    return {
        "num_questions": len(items),
        "gold_passage_in_top_5": round(retrieved / len(items), 4),
        "answer_contains_gold": round(contains / retrieved, 4),
        "mean_sentences": round(num_sentences / retrieved, 2),
        "answerability_auc": round(float((ranks > 0).mean() + (ranks == 0).mean() / 2), 4),
        "answered_own_article": round(float(np.mean(np.asarray(own) >= ABSTAIN_BELOW)), 4),
        "declined_other_articles": round(float(np.mean(np.asarray(other) < ABSTAIN_BELOW)), 4),
    }


def measure(quick: bool) -> Measured:
    """Fill the table; a quick run takes one embedder, English, and fewer questions."""
    cache = ModelCache(models_folder())
    embedders, languages = (EMBEDDERS[:1], LANGUAGES[:1]) if quick else (EMBEDDERS, LANGUAGES)
    num_answers = 60 if quick else 240
    table: list[dict[str, str | float]] = []
    gains: list[float] = []
    extractive: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in embedders:
            embedder = Embedder.load(name, cache, threads=1)
            for language in languages:
                documents, items = read(language)
                bench = Bench(Path(folder) / f"{name}-{language}", embedder, documents)
                found = recalls(bench, items[:: 5 if quick else 1])
                table += [
                    {"language": language, "embedder": name, "mode": mode, **found[mode]}
                    for mode in MODES
                ]
                if language == "en":
                    at_5 = {mode: found[mode]["recall_at_5"] for mode in MODES}
                    gains.append(at_5["hybrid"] - max(at_5["dense"], at_5["lexical"]))
                say(f"{language} {name}: {found}")
                if quick or (name == ANSWER_EMBEDDER and language in ANSWER_LANGUAGES):
                    held_out = [item for item in items if item.article % 2 == 1]
                    drawn = random.Random(SEED).sample(held_out, num_answers)
                    extractive[language] = answers(bench, drawn)
                    say(f"{language} {name}: {extractive[language]}")
                bench.index.close()
    defaults = RetrievalSettings()
    settings = {
        "corpus": "XQuAD, each context a document, all questions (quick: every fifth)",
        "fusion": {"rrf_k": defaults.rrf_k, "dense_weight": defaults.dense_weight,
                   "candidates": defaults.candidates, "chosen_on": "XQuAD es, CMRC 2018"},
        "answers": f"{num_answers} questions of the articles that no weight was fitted on",
        "answer_embedder": embedders[0] if quick else ANSWER_EMBEDDER,
    }  # fmt: skip
    figures = {"hybrid_recall_at_5_minus_best_single": round(min(gains), 4), "table": table,
               "extractive": extractive}  # fmt: skip
    return Measured(figures, settings, SEED)
