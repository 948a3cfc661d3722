"""`/v1/models` and `/v1/embeddings`."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter

from index.errors import InvalidInput, NotFound
from index.records import FloatArray
from rag_api.web import views
from rag_api.web.dependencies import GraftPart, Tenant
from rag_api.web.schemas import EmbeddingRequest
from rag_api.wiring import Graft

router = APIRouter(prefix="/v1", tags=["models"])
STARTED = 1_700_000_000
"""A fixed date: models have no creation time that would mean anything here."""


@router.get("/models")
def list_models(graft: GraftPart, _tenant: Tenant) -> dict[str, Any]:
    """List the models of this server."""
    return {"object": "list", "data": models_of(graft)}


@router.get("/models/{model:path}")
def get_model(model: str, graft: GraftPart, _tenant: Tenant) -> dict[str, Any]:
    """Show one model."""
    for shown in models_of(graft):
        if shown["id"] == model:
            return shown
    raise NotFound(f"the model {model!r} does not exist here")


@router.post("/embeddings")
def embed(body: EmbeddingRequest, graft: GraftPart, _tenant: Tenant) -> dict[str, Any]:
    """Embed texts with the embedder of this server, unit length, nothing cut."""
    source = graft.settings.embedder_source
    if body.model not in (source, views.model_id(source)):
        raise NotFound(
            f"the embedding model {body.model!r} does not exist here; "
            f"use {views.model_id(source)!r}"
        )
    texts = texts_of(body, limit=graft.settings.limits.embedding_items)
    embedder = graft.embedder
    if body.dimensions not in (None, embedder.dimension):
        raise InvalidInput(
            f"this model has {embedder.dimension} dimensions and no others", param="dimensions"
        )
    encode = embedder.encode_queries if body.input_type == "query" else embedder.encode_passages
    tokens = sum(embedder.count_tokens(text) for text in texts)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": shown(vector, body.encoding_format)}
            for i, vector in enumerate(encode(texts))
        ],
        "model": body.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def texts_of(body: EmbeddingRequest, *, limit: int) -> list[str]:
    """Read the input as texts. Token ids are refused: they are another model's."""
    given = [body.input] if isinstance(body.input, str) else body.input
    texts = [text for text in given if isinstance(text, str)]
    if len(texts) != len(given):
        raise InvalidInput("token ids are not supported as input; send texts", param="input")
    if not 1 <= len(texts) <= limit:
        raise InvalidInput(f"1 to {limit} texts at once; {len(texts)} came", param="input")
    if any(not text for text in texts):
        raise InvalidInput("an empty text cannot be embedded", param="input")
    return texts


def shown(vector: FloatArray, encoding: str) -> list[float] | str:
    """Give a vector as numbers, or as base64 of little-endian float32."""
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(value) for value in np.asarray(vector, dtype=np.float32)]


def models_of(graft: Graft) -> list[dict[str, Any]]:
    """Show the backbone and the embedder."""
    settings = graft.settings
    return [
        views.model(settings.backbone, "backbone", STARTED),
        views.model(settings.embedder_source, "embedder", STARTED),
    ]
