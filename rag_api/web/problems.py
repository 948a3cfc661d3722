"""Errors become answers here: one table from Graft's errors to problem+json.

Each answer carries `type, title, status, detail, code` and OpenAI's `error` member, so that both
kinds of client read it. Knows nothing of routes or services.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from index import errors

log = logging.getLogger("graft.web")
PROBLEM_TYPE = "application/problem+json"


class Kind(NamedTuple):
    """How one class of errors is answered."""

    status: int
    title: str
    openai_type: str


TABLE: Mapping[type[errors.GraftError], Kind] = {
    errors.UnsupportedFormat: Kind(415, "Unsupported format", "invalid_request_error"),
    errors.ParseError: Kind(422, "No usable text", "invalid_request_error"),
    errors.TooLarge: Kind(413, "Too large", "invalid_request_error"),
    errors.InvalidInput: Kind(422, "Invalid input", "invalid_request_error"),
    errors.NotFound: Kind(404, "Not found", "invalid_request_error"),
    errors.FingerprintMismatch: Kind(409, "Made by another model", "invalid_request_error"),
    errors.Conflict: Kind(409, "Conflict", "invalid_request_error"),
    errors.Damaged: Kind(503, "Damaged data", "server_error"),
    errors.StorageFailed: Kind(507, "Storage failed", "server_error"),
    errors.ModelError: Kind(503, "Model not available", "server_error"),
    errors.ConfigError: Kind(500, "Wrong settings", "server_error"),
    errors.Busy: Kind(503, "Busy", "server_error"),
    errors.Cancelled: Kind(499, "Cancelled", "invalid_request_error"),
}
HTTP_TITLES: Mapping[int, tuple[str, str]] = {
    400: ("Bad request", "bad_request"),
    401: ("Not authenticated", "invalid_api_key"),
    404: ("Not found", "not_found"),
    405: ("Method not allowed", "method_not_allowed"),
    413: ("Too large", "too_large"),
}
RETRYABLE = {408, 429, 500, 502, 503, 504}


def kind_of(error: errors.GraftError) -> Kind:
    """Find the row of the table for an error's nearest class."""
    for base in type(error).__mro__:
        if base in TABLE:
            return TABLE[base]
    return Kind(500, "Error", "server_error")


def problem_of(error: errors.GraftError) -> dict[str, Any]:
    """Describe one of Graft's errors as problem+json with OpenAI's member."""
    kind = kind_of(error)
    return problem(
        kind.status,
        kind.title,
        error.message,
        code=error.code,
        param=getattr(error, "param", None),
        openai_type=kind.openai_type,
    )


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    code: str,
    param: str | None = None,
    openai_type: str = "invalid_request_error",
) -> dict[str, Any]:
    """Build the body of a problem+json answer."""
    return {
        "type": f"urn:graft:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "error": {"message": detail, "type": openai_type, "param": param, "code": code},
    }


def answer(body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Turn a problem into a response; what will not get better by itself is marked so."""
    status = int(body["status"])
    extra = dict(headers or {})
    if status not in RETRYABLE:
        extra["x-should-retry"] = "false"
    shown = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(shown, status, headers=extra, media_type=PROBLEM_TYPE)


def install(app: FastAPI) -> None:
    """Register the handlers of every error that a route can raise."""
    app.add_exception_handler(errors.GraftError, _graft_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)


async def _graft_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.GraftError)
    if isinstance(error, errors.Damaged):
        request.app.state.readiness.suspect()
    headers = {}
    if isinstance(error, errors.Busy):
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    if kind_of(error).status >= 500:
        log.warning("%s: %s", error.code, error.message)
    return answer(problem_of(error), headers)


async def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    path = [str(step) for step in first["loc"] if step not in ("body", "query", "path", "header")]
    name = ".".join(path) or None
    if first["type"] == "json_invalid":
        return answer(problem(400, "Bad request", "the body is not JSON", code="invalid_json"))
    if first["type"] == "extra_forbidden":
        detail = f"unknown or unsupported parameter {name!r}; leave it out"
        return answer(
            problem(422, "Unknown parameter", detail, code="unknown_parameter", param=name)
        )
    detail = f"{name}: {first['msg']}" if name else str(first["msg"])
    return answer(problem(422, "Invalid input", detail, code="invalid_input", param=name))


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title, code = HTTP_TITLES.get(error.status_code, ("Error", "error"))
    return answer(
        problem(error.status_code, title, str(error.detail), code=code), dict(error.headers or {})
    )
