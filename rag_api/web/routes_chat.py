"""`/v1/chat/completions`: OpenAI's conversation, answered with passages and token memory."""

from __future__ import annotations

import random
from typing import Any

from fastapi import APIRouter, Request, Response

from index.errors import InvalidInput, NotFound
from rag_api.services.questions import Decoding, KnnWish, Question, SearchWish
from rag_api.web import views
from rag_api.web.dependencies import GraftPart, Tenant, in_thread
from rag_api.web.schemas import ChatMessage, ChatRequest, KnnExtra, RetrievalExtra
from rag_api.web.streams import EventStream, finish_unless_gone
from rag_api.wiring import Graft

router = APIRouter(prefix="/v1/chat", tags=["chat"])
MAX_STOPS = 4


@router.post("/completions", response_model=None)
async def complete_chat(
    body: ChatRequest, request: Request, graft: GraftPart, tenant: Tenant
) -> dict[str, Any] | Response:
    """Answer a conversation, whole or as a stream of events.

    `retrieval` names vector stores and a mode, `knn` the part of the token memory; citations come
    as checked `annotations`, and `include: ["tokens"]` adds each token's sources under `graft`.

    A stream sends words as they are written, without markers that name no passage. Whether a
    passage holds what a marker stands for is known at the end: the last event has the checked
    answer as `graft.answer`, with its annotations.
    """
    check(body, graft)
    answering = await in_thread(graft.answers.start, question_of(body, tenant))
    if body.stream:
        return EventStream(answering, body)
    answered = await finish_unless_gone(answering, request)
    return views.completion(
        f"chatcmpl-{views.new_id()}",
        body.model,
        answered,
        include=body.include,
        num_top=num_top(body),
    )


def check(body: ChatRequest, graft: Graft) -> None:
    """Refuse what the schema cannot: an unknown model, several answers, contradictions."""
    known = views.model_id(graft.settings.backbone)
    if body.model not in (known, graft.settings.backbone):
        raise NotFound(f"the model {body.model!r} does not exist here; use {known!r}")
    if body.n not in (None, 1):
        raise InvalidInput("one answer at a time: leave 'n' out or send 1", param="n")
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidInput("'top_logprobs' needs 'logprobs': true", param="top_logprobs")
    if body.stream_options is not None and not body.stream:
        raise InvalidInput("'stream_options' needs 'stream': true", param="stream_options")
    if None not in (body.max_tokens, body.max_completion_tokens):
        raise InvalidInput(
            "send 'max_completion_tokens' or 'max_tokens', not both", param="max_tokens"
        )
    if len(stops(body)) > MAX_STOPS:
        raise InvalidInput(f"at most {MAX_STOPS} stop strings", param="stop")


def question_of(body: ChatRequest, tenant: str) -> Question:
    """Read the question out of a request."""
    retrieval = body.retrieval or RetrievalExtra()
    knn = body.knn or KnnExtra()
    return Question(
        messages=tuple(message_of(message) for message in body.messages),
        stores=tuple(retrieval.vector_store_ids),
        tenant=tenant,
        mode=retrieval.mode,
        search=SearchWish(
            k=retrieval.k,
            candidates=retrieval.candidates,
            mode=retrieval.search_mode,
            where=retrieval.where,
            min_dense=retrieval.min_dense,
            min_lexical=retrieval.min_lexical,
            min_rerank=retrieval.min_rerank,
            mmr_lambda=retrieval.mmr_lambda,
        ),
        knn=KnnWish(knn.lam, knn.k, knn.temperature),
        decoding=decoding_of(body),
        abstain=retrieval.abstain,
    )


def decoding_of(body: ChatRequest) -> Decoding:
    """Read how tokens are to be chosen. Without a seed, sampling takes a fresh one."""
    wanted = body.max_completion_tokens or body.max_tokens
    return Decoding(
        max_tokens=wanted,
        temperature=body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=random.getrandbits(63) if body.seed is None else body.seed,
        stop=tuple(stops(body)),
        logprobs=num_top(body),
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=logit_bias(body),
    )


def logit_bias(body: ChatRequest) -> dict[int, float]:
    """Read biases by token id, within OpenAI's bounds."""
    biases = body.logit_bias or {}
    for name, value in biases.items():
        if not name.isascii() or not name.isdigit() or not -100 <= value <= 100:
            raise InvalidInput(
                "logit_bias maps token ids to numbers from -100 to 100", param="logit_bias"
            )
    return {int(name): value for name, value in biases.items()}


def stops(body: ChatRequest) -> list[str]:
    """Give the stop strings as a list."""
    if body.stop is None:
        return []
    return [body.stop] if isinstance(body.stop, str) else body.stop


def num_top(body: ChatRequest) -> int | None:
    """Give how many alternatives to report for each token; None: no log-probabilities at all."""
    return (body.top_logprobs or 0) if body.logprobs else None


def message_of(message: ChatMessage) -> dict[str, str]:
    """Give a message as the model's template takes it."""
    if message.name is not None:
        raise InvalidInput("'name' in a message is not supported", param="messages")
    content = message.content
    if not isinstance(content, str):
        content = "".join(part.text for part in content)
    return {"role": "system" if message.role == "developer" else message.role, "content": content}
