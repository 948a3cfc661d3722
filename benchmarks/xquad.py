"""Read XQuAD: each context becomes a document, each question knows the document that answers it.

In: the corpus folder and a language. Out: documents by name, questions with gold names. Knows
nothing of models or stores.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from reporting import MissingData, corpus


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the name of the document that holds its answer."""

    question: str
    document: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents by name, and the questions about them."""

    documents: dict[str, str]
    questions: tuple[Asked, ...]


def read(language: str) -> Corpus:
    """Read one language of XQuAD."""
    path = corpus("xquad") / f"xquad.{language}.json"
    if not path.is_file():
        raise MissingData(f"XQuAD has no file {path.name!r}")
    documents: dict[str, str] = {}
    questions: list[Asked] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            name = f"context-{len(documents):04}.txt"
            documents[name] = paragraph["context"]
            questions += [Asked(item["question"], name) for item in paragraph["qas"]]
    return Corpus(documents, tuple(questions))


def sample(whole: Corpus, num_documents: int, num_questions: int, seed: int) -> Corpus:
    """Draw some documents and some of their questions."""
    rng = random.Random(seed)
    names = sorted(rng.sample(sorted(whole.documents), min(num_documents, len(whole.documents))))
    kept = set(names)
    about = [asked for asked in whole.questions if asked.document in kept]
    chosen = rng.sample(about, min(num_questions, len(about)))
    return Corpus({name: whole.documents[name] for name in names}, tuple(chosen))


def write(documents: dict[str, str], folder: Path) -> list[Path]:
    """Write documents as plain text files, and give their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in documents.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in documents]
