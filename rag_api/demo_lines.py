"""Draw which documents moved which tokens of an answer: an answer in, lines for a terminal out.

One colour a document, with a legend; plain marks where there are no colours. Knows nothing of how
answers are made.
"""

from __future__ import annotations

from rich.text import Text

from rag_api.services.questions import Answered

MARKED_SHARE = 0.10
"""The least share of a token's probability that is shown."""
STRONG_SHARE = 0.5
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def shares(answered: Answered) -> list[dict[str, float]]:
    """Give for each token the share of its probability by document."""
    found = []
    for token in answered.tokens:
        by_document: dict[str, float] = {}
        for source in token.sources:
            by_document[source.document] = by_document.get(source.document, 0.0) + source.share
        found.append(by_document)
    return found


def strongest(by_document: dict[str, float]) -> str | None:
    """Name the document that moved a token most, if it moved it enough to be shown."""
    document = max(by_document, key=lambda name: by_document[name], default=None)
    if document is None or by_document[document] < MARKED_SHARE:
        return None
    return document


def letters(answered: Answered) -> dict[str, str]:
    """Give each document that is shown on the line its letter, the one with most share first."""
    total: dict[str, float] = {}
    for token, by_document in zip(answered.tokens, shares(answered), strict=True):
        document = strongest(by_document)
        if document is not None and token.text.strip():
            total[document] = total.get(document, 0.0) + by_document[document]
    ranked = sorted(total, key=lambda document: -total[document])
    return {document: chr(ord("A") + i % 26) for i, document in enumerate(ranked)}


def moved_line(answered: Answered, *, colours: bool) -> Text:
    """Draw the answer with each token in its strongest document's colour, or with plain marks."""
    names = letters(answered)
    order = list(names)
    line = Text("  ")
    for token, by_document in zip(answered.tokens, shares(answered), strict=True):
        text = token.text.replace("\n", " ")
        document = strongest(by_document)
        if document is None or not text.strip():
            line.append(text)
            continue
        share = by_document[document]
        colour = COLOURS[order.index(document) % len(COLOURS)]
        if colours:
            strong = f"bold reverse {colour}"
            line.append(text, style=strong if share >= STRONG_SHARE else f"{colour} underline")
        else:
            line.append(f"{text}‹{names[document]} {share:.0%}›")
    return line


def legend(answered: Answered, *, colours: bool) -> Text:
    """Say which colour or letter is which document, and how strong its strongest share was."""
    line = Text("  ")
    for number, (document, letter) in enumerate(letters(answered).items()):
        highest = max(by_document.get(document, 0.0) for by_document in shares(answered))
        style = COLOURS[number % len(COLOURS)] if colours else ""
        line.append(f"{letter} {document} (up to {highest:.0%})  ", style=style)
    if not line.plain.strip():
        line.append(f"no token owes {MARKED_SHARE:.0%} of its probability to a document")
    return line
