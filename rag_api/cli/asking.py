"""`graft ask`, `graft search` and `graft text`: questions in, passages and answers out."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from index.errors import InvalidInput
from rag_api.cli.base import TENANT, AsJson, Store, app, graft_of
from rag_api.cli.terminal import print_answer, print_json, print_passages, print_text
from rag_api.services.questions import (
    MODES,
    Decoding,
    KnnWish,
    Mode,
    Question,
    SearchWish,
    answered_json,
    passage_json,
)

Where = Annotated[
    str | None,
    typer.Option("--where", help='A filter: {"type": "eq", "key": "document", "value": "a.md"}.'),
]
AskMode = Annotated[
    str | None,
    typer.Option(
        "--mode", help="none, rag, knn_lm, both or extractive (default: both, or rag without keys)."
    ),
]
Stores = Annotated[
    list[str] | None, typer.Option("--store", "-s", help="A store; may be given more than once.")
]


@app.command()
def ask(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="The question.")],
    store: Stores = None,
    mode: AskMode = None,
    as_json: AsJson = False,
    abstain: Annotated[
        bool, typer.Option("--abstain", help="Say so where the documents do not answer.")
    ] = False,
    passages: Annotated[
        int | None, typer.Option("--passages", min=1, help="Passages in the prompt.")
    ] = None,
    where: Where = None,
    lam: Annotated[
        float | None, typer.Option("--lambda", min=0, max=1, help="The token memory's weight.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", "-k", min=1, help="Neighbours in the token memory.")
    ] = None,
    knn_temperature: Annotated[
        float | None, typer.Option("--knn-temperature", help="In units of the store's distances.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1)] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=2, help="0 is greedy.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
) -> None:
    """Ask a question; the answer comes with quotes that were checked against the documents."""
    asked = Question(
        messages=({"role": "user", "content": question},),
        stores=tuple(store or ()),
        tenant=TENANT,
        mode=_mode(mode),
        search=SearchWish(k=passages, where=_filter(where)),
        knn=KnnWish(lam, k, knn_temperature),
        decoding=Decoding(max_tokens=max_tokens, temperature=temperature, seed=seed),
        abstain=abstain,
    )
    with graft_of(ctx) as graft:
        answered = graft.answers.ask(asked)
    if as_json:
        print_json(answered_json(answered))
    else:
        print_answer(answered)


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    store: Store,
    as_json: AsJson = False,
    k: Annotated[int | None, typer.Option("--k", "-k", min=1, help="How many passages.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="hybrid, dense or lexical.")] = None,
    where: Where = None,
) -> None:
    """Search a store; loads the embedder and never the language model."""
    wish = SearchWish(k=k, mode=_search_mode(mode), where=_filter(where))
    with graft_of(ctx) as graft:
        found = graft.searches.search(query, [store], tenant=TENANT, wish=wish)
    shown = [passage_json(passage) for passage in found]
    if as_json:
        print_json(shown)
    else:
        print_passages(shown)


@app.command()
def text(
    ctx: typer.Context,
    document: Annotated[str, typer.Argument(help="The document's name.")],
    store: Store,
) -> None:
    """Print exactly the extracted text of a document; all offsets count its code points."""
    with graft_of(ctx) as graft:
        words = graft.documents.text(graft.stores.get(store, tenant=TENANT), document)
    print_text(words)


def _mode(word: str | None) -> Mode | None:
    if word is None:
        return None
    for mode in MODES:
        if mode == word:
            return mode
    raise InvalidInput(f"mode is one of {', '.join(MODES)} and not {word!r}", param="mode")


def _search_mode(word: str | None) -> Any:
    if word not in (None, "hybrid", "dense", "lexical"):
        raise InvalidInput(f"mode is hybrid, dense or lexical and not {word!r}", param="mode")
    return word


def _filter(words: str | None) -> dict[str, Any] | None:
    if words is None:
        return None
    try:
        parsed = json.loads(words)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"--where is not JSON: {error}", param="where") from None
    if not isinstance(parsed, dict):
        raise InvalidInput("--where is a JSON object", param="where")
    return parsed
