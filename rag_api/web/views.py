"""Records become OpenAI's objects here: pure functions from records to JSON data.

Knows nothing of requests or services.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from index.records import DocumentRecord, Passage, StoreRecord
from rag_api.services.jobs import Batch, StoredFile
from rag_api.services.questions import Answered, Piece, Quote, passage_json, piece_json, quote_json

if TYPE_CHECKING:
    from index import FileRecord, JobRecord

JSON = dict[str, Any]
LAST_ERRORS = {"unsupported_format": "unsupported_file", "parse_error": "invalid_file"}


def new_id() -> str:
    """Make an id that nobody can guess."""
    return uuid.uuid4().hex


def deleted(object_id: str, kind: str) -> JSON:
    """Say that something is gone."""
    return {"id": object_id, "object": f"{kind}.deleted", "deleted": True}


def file(record: FileRecord, *, is_new: bool = True) -> JSON:
    """Show a file; one that was there already names what it duplicates."""
    shown = {
        "id": record.id,
        "object": "file",
        "bytes": record.num_bytes,
        "created_at": int(record.created),
        "filename": record.name,
        "purpose": record.purpose,
        "status": "processed",
    }
    if not is_new:
        shown["graft"] = {"duplicate_of": record.id, "sha256": record.sha256}
    return shown


def store(record: StoreRecord, files: Iterable[StoredFile]) -> JSON:
    """Show a vector store with the counts of its files."""
    listed = list(files)
    states: list[str] = [item.state for item in listed]
    names = ("in_progress", "completed", "failed", "cancelled")
    counts = {name: states.count(name) for name in names}
    return {
        "id": record.id,
        "object": "vector_store",
        "created_at": int(record.created),
        "name": record.name,
        "status": "in_progress" if counts["in_progress"] else "completed",
        "usage_bytes": sum(item.document.num_bytes for item in listed if item.document),
        "file_counts": {**counts, "total": len(states)},
        "metadata": dict(record.metadata),
        "last_active_at": int(record.created),
        "expires_after": None,
        "expires_at": None,
        "graft": {
            "embedder": record.embedder,
            "dimension": record.dimension,
            "chunking": dict(record.chunking),
            "generation": record.generation,
        },
    }


def store_file(item: StoredFile) -> JSON:
    """Show a file of a vector store."""
    document = item.document
    error = None
    if item.state == "failed":
        code = LAST_ERRORS.get(item.error_code or "", "server_error")
        error = {"code": code, "message": item.error or "the ingestion failed"}
    return {
        "id": item.file.id,
        "object": "vector_store.file",
        "created_at": int(document.created if document else item.file.created),
        "vector_store_id": item.store.id,
        "status": item.state,
        "last_error": error,
        "usage_bytes": document.num_bytes if document else 0,
        "attributes": dict(item.attributes or {}),
        "chunking_strategy": chunking(item.store),
        "graft": {
            "document": item.file.name,
            "job_id": item.job_id,
            "error_code": item.error_code,
            **(document_facts(document) if document else {}),
        },
    }


def chunking(record: StoreRecord) -> JSON:
    """Show how a store's texts are cut."""
    return {
        "type": "static",
        "static": {
            "max_chunk_size_tokens": record.chunking["size"],
            "chunk_overlap_tokens": record.chunking["overlap"],
        },
    }


def document_facts(document: DocumentRecord) -> JSON:
    """Show what is known of a document."""
    return {
        "version": document.version,
        "media_type": document.media_type,
        "characters": document.num_chars,
        "chunks": document.num_chunks,
        "pages": len(document.page_starts),
        "coverage": document.coverage,
        "warnings": list(document.warnings),
        "memories": list(document.memories),
    }


def document(record: DocumentRecord) -> JSON:
    """Show a document of a store."""
    return {
        "id": record.name,
        "object": "graft.document",
        "document": record.name,
        "file_id": record.file_id,
        "bytes": record.num_bytes,
        "created_at": int(record.created),
        "attributes": dict(record.attributes),
        **document_facts(record),
    }


def batch(vector_store: StoreRecord, made: Batch) -> JSON:
    """Show a bulk attachment: one item a file, with an error where it was refused."""
    items: list[JSON] = [
        {"file_id": item.file.id, "status": item.state, "error": None} for item in made.accepted
    ]
    items += [
        {"file_id": name, "status": "failed", "error": {"code": e.code, "message": e.message}}
        for name, e in made.refused
    ]
    counts = {"in_progress": len(made.accepted), "completed": 0, "failed": len(made.refused)}
    return {
        "id": f"vsfb_{made.job.id}" if made.job else f"vsfb_{new_id()}",
        "object": "vector_store.files_batch",
        "created_at": int(made.job.created if made.job else time.time()),
        "vector_store_id": vector_store.id,
        "status": "in_progress" if made.job else "failed",
        "file_counts": {**counts, "cancelled": 0, "total": len(items)},
        "graft": {"job_id": made.job.id if made.job else None, "items": items},
    }


def batch_of_job(job: JobRecord, listed: Sequence[StoredFile]) -> JSON:
    """Show how far a bulk attachment is."""
    wanted = {item["file_id"] for item in job.payload["items"]}
    refused = job.payload.get("refused", [])
    states: list[str] = [item.state for item in listed if item.file.id in wanted]
    there = {item.file.id for item in listed}
    dismissed = {i["file_id"] for i in job.payload["items"] if i.get("dismissed")} - there
    states += ["cancelled"] * len(dismissed)
    counts = {name: states.count(name) for name in ("in_progress", "completed", "cancelled")}
    failed = states.count("failed") + len(refused)
    ended = "cancelled" if counts["cancelled"] else "completed"
    return {
        "id": f"vsfb_{job.id}",
        "object": "vector_store.files_batch",
        "created_at": int(job.created),
        "vector_store_id": job.store_id,
        "status": "in_progress" if counts["in_progress"] else ended,
        "file_counts": {**counts, "failed": failed, "total": len(wanted) + len(refused)},
        "graft": {"job_id": job.id, "refused": refused},
    }


def job(record: JobRecord) -> JSON:
    """Show a job."""
    return {
        "id": record.id,
        "object": "graft.job",
        "kind": record.kind,
        "state": record.state,
        "vector_store_id": record.store_id,
        "progress": dict(record.progress),
        "result": record.result,
        "error": record.error,
        "error_code": record.error_code,
        "attempts": record.attempts,
        "created_at": int(record.created),
        "updated_at": int(record.updated),
    }


def model(source: str, role: str, created: int) -> JSON:
    """Show a model that this server uses."""
    return {
        "id": model_id(source),
        "object": "model",
        "created": created,
        "owned_by": "graft",
        "graft": {"role": role},
    }


def model_id(source: str) -> str:
    """Name a model for clients: an alias as it is, a folder by its last part."""
    return PurePath(source).name if "/" in source and ":" not in source else source


def score_of(passage: Passage) -> float:
    """Give the score that the order follows: rerank, then fused, dense, lexical."""
    for name in ("rerank", "fused", "dense", "lexical"):
        if name in passage.scores:
            return float(passage.scores[name])
    return 0.0


def search_page(queries: Sequence[str], found: Sequence[tuple[Passage, str | None]]) -> JSON:
    """Show the results of a search with the files that they come from."""
    return {
        "object": "vector_store.search_results.page",
        "search_query": list(queries),
        "data": [
            {
                "file_id": file_id or "",
                "filename": passage.document,
                "score": score_of(passage),
                "attributes": dict(passage.attributes),
                "content": [{"type": "text", "text": passage.text}],
                "graft": passage_json(passage),
            }
            for passage, file_id in found
        ],
        "has_more": False,
        "next_page": None,
    }


def annotation(quote: Quote, index: int) -> JSON:
    """Show a checked citation; `start_index`, `end_index` are of the answer."""
    return {
        "type": "file_citation",
        "index": index,
        "file_id": quote.file_id,
        "filename": quote.document,
        "start_index": quote.answer_start,
        "end_index": quote.answer_end,
        "vector_store_id": quote.store_id,
        **quote_json(quote),
    }


def logprobs(pieces: Sequence[Piece], *, num_top: int) -> JSON:
    """Show tokens with their log-probabilities."""
    return {
        "content": [
            {
                **_logprob(piece.text, piece.logprob),
                "top_logprobs": [_logprob(text, value) for text, value in piece.top[:num_top]],
            }
            for piece in pieces
            if piece.logprob is not None
        ],
        "refusal": None,
    }


def _logprob(text: str, value: float | None) -> JSON:
    return {
        "token": text,
        "logprob": max(-9999.0, value if value is not None else -9999.0),
        "bytes": list(text.encode("utf-8", "surrogatepass")),
    }


def extras(answered: Answered, include: Sequence[str]) -> JSON:
    """Show what Graft adds to an answer; tokens and passages only where they are asked for."""
    shown: JSON = {
        "mode": answered.mode,
        "answer": answered.answer,
        "abstained": answered.abstained,
        "dropped_markers": answered.dropped,
        "warnings": list(answered.warnings),
        "timings": dict(answered.timings),
    }
    if "tokens" in include:
        shown["tokens"] = [piece_json(piece) for piece in answered.tokens]
    if "passages" in include:
        shown["passages"] = [passage_json(passage) for passage in answered.passages]
    return shown


def usage(answered: Answered) -> JSON:
    """Show the counts of tokens."""
    return {
        "prompt_tokens": answered.prompt_tokens,
        "completion_tokens": answered.completion_tokens,
        "total_tokens": answered.prompt_tokens + answered.completion_tokens,
    }


def finish_reason(answered: Answered) -> str:
    """Give OpenAI's word for the end."""
    return "length" if answered.finish_reason == "length" else "stop"


def completion(
    completion_id: str,
    model_name: str,
    answered: Answered,
    *,
    include: Sequence[str],
    num_top: int | None,
) -> JSON:
    """Show a whole chat completion."""
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model_name,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": answered.answer,
                    "refusal": None,
                    "annotations": [
                        annotation(quote, i) for i, quote in enumerate(answered.citations)
                    ],
                },
                "logprobs": None if num_top is None else logprobs(answered.tokens, num_top=num_top),
                "finish_reason": finish_reason(answered),
            }
        ],
        "usage": usage(answered),
        "graft": extras(answered, include),
    }


def chunk(
    completion_id: str,
    model_name: str,
    created: int,
    *,
    delta: Mapping[str, Any] | None,
    finish: str | None = None,
    more: Mapping[str, Any] | None = None,
    choice: Mapping[str, Any] | None = None,
) -> JSON:
    """Show one chunk of a stream; no delta means a chunk without choices."""
    first = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish, **(choice or {})}
    return {
        "id": completion_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model_name,
        "choices": [] if delta is None else [first],
        **(more or {}),
    }
