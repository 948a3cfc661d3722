"""Ask for invented facts in every mode and keep what was answered, right or wrong.

In: the documents of benchmarks/planted, which no model has ever seen. Out: for each question and
mode the answer, and whether it contains the fact. Knows nothing of how answers are made.
"""

from __future__ import annotations

import tempfile
import unicodedata
from dataclasses import asdict, dataclass
from pathlib import Path

from ingestion import SourceFile
from rag_api.services.questions import Decoding, Mode, Question, SearchWish
from rag_api.settings import load_settings
from rag_api.wiring import Graft
from reporting import Measured, models_folder, say

PLANTED = Path(__file__).resolve().parent / "planted"
MODES: tuple[Mode, ...] = ("none", "rag", "knn_lm", "both")
TENANT = "default"
MAX_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Fact:
    """A question and the words that a right answer contains."""

    question: str
    expected: str


FACTS = (
    Fact("In which harbour was the research vessel Halvorine launched?", "Tessmark"),
    Fact("Who is the captain of the Halvorine?", "Varnadoe"),
    Fact("How often must the Ostrander valve be turned after a dive?", "eleven"),
    Fact("How deep does the lantern probe go?", "6,240"),
    Fact("What do the people of Brandelow call the drink brewed from ostergrain?", "pellivane"),
    Fact("How many tonnes does the Quellmoor bridge carry?", "47"),
    Fact("青岚市的市花是什么？", "银铃草"),
    Fact("云汀大桥全长多少米？", "3271"),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one mode answered to one question."""

    question: str
    expected: str
    mode: Mode
    answer: str
    contains: bool
    num_quotes: int
    memory_share: float
    """Mean share of the answer's token probabilities that came from the token memory."""


def measure(quick: bool) -> Measured:
    """Ingest the planted documents, build their keys, ask every question in every mode."""
    facts = (FACTS[0], FACTS[-1]) if quick else FACTS
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data_dir=Path(folder), models_dir=models_folder())
        graft = Graft(settings, can_pull=True)
        try:
            replies = _ask_all(graft, facts)
            used = {
                "backbone": settings.backbone,
                "embedder": settings.embedder_source,
                "lambda": settings.knn.lam,
                "k": settings.knn.k,
                "temperature": settings.knn.temperature,
                "max_tokens": MAX_TOKENS,
            }
        finally:
            graft.close()
    figures: dict[str, object] = {
        f"contains_{mode}": sum(r.contains for r in replies if r.mode == mode) for mode in MODES
    }
    figures["num_facts"] = len(facts)
    figures["replies"] = [asdict(reply) for reply in replies]
    return Measured(figures, used, seed=0)


def _ask_all(graft: Graft, facts: tuple[Fact, ...]) -> list[Reply]:
    store, _ = graft.stores.get_or_create("planted", tenant=TENANT)
    sources = [SourceFile(name=path.name, path=path) for path in sorted(PLANTED.glob("*.md"))]
    graft.documents.ingest(store, sources)
    built = graft.memory.build(store)
    say(f"{len(sources)} documents, {built.num_tokens} token keys")
    return [_ask(graft, store.id, fact, mode) for fact in facts for mode in MODES]


def _ask(graft: Graft, store_id: str, fact: Fact, mode: Mode) -> Reply:
    answered = graft.answers.ask(
        Question(
            messages=({"role": "user", "content": fact.question},),
            stores=() if mode == "none" else (store_id,),
            mode=mode,
            search=SearchWish(k=1),
            decoding=Decoding(max_tokens=MAX_TOKENS),
        )
    )
    moved = [sum(source.share for source in token.sources) for token in answered.tokens]
    say(f"{mode:7} {fact.question} → {answered.answer.strip()!r}")
    return Reply(
        question=fact.question,
        expected=fact.expected,
        mode=mode,
        answer=answered.answer.strip(),
        contains=contains(answered.answer, fact.expected),
        num_quotes=sum(quote.verified for quote in answered.citations),
        memory_share=round(sum(moved) / max(1, len(moved)), 4),
    )


def contains(answer: str, expected: str) -> bool:
    """Say whether an answer holds the fact, whatever the case, width or separators of digits."""
    return _plain(expected) in _plain(answer)


def _plain(words: str) -> str:
    return unicodedata.normalize("NFKC", words).casefold().replace(",", "").replace(" ", "")
