"""Pure ASGI middleware: request id, key check before the body is read, body size limits.

What goes in is an ASGI application, what comes out is one. Nothing here buffers a body.
Knows nothing of routes beyond which paths are open and which take uploads.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from index.errors import TooLarge
from index.records import DEFAULT_TENANT
from rag_api.web import problems

log = logging.getLogger("graft.web")
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
UPLOAD_OVERHEAD = 64 * 1024
"""What a multipart envelope may add to a file."""


class RequestId:
    """Gives every answer an `x-request-id` and turns an unforeseen fault into a problem."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; log and answer what nobody else caught."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = uuid.uuid4().hex
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            log.exception("request %s failed", request_id)
            if not started:
                await problems.answer(_internal(request_id))(scope, receive, send_with_id)


def _internal(request_id: str) -> dict[str, Any]:
    detail = f"an internal error; the server's log has it under request {request_id}"
    return problems.problem(
        500, "Internal error", detail, code="internal_error", openai_type="server_error"
    )


class KeyCheck:
    """Finds the tenant of a request by its key, before a byte of the body is read.

    `digests` maps the SHA-256 (hex) of a key to a tenant; empty means one local tenant.
    """

    def __init__(self, app: ASGIApp, digests: Mapping[str, str]) -> None:
        self.app = app
        self.digests = dict(digests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set `scope["state"]["tenant"]`, or answer 401."""
        if scope["type"] == "http":
            tenant = self._tenant(scope)
            if tenant is None:
                detail = "no valid API key; send `Authorization: Bearer KEY`"
                body = problems.problem(401, "Not authenticated", detail, code="invalid_api_key")
                await problems.answer(body, {"www-authenticate": "Bearer", "connection": "close"})(
                    scope, receive, send
                )
                return
            scope.setdefault("state", {})["tenant"] = tenant
        await self.app(scope, receive, send)

    def _tenant(self, scope: Scope) -> str | None:
        if not self.digests or scope["path"] in OPEN_PATHS:
            return DEFAULT_TENANT
        header = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = header.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        digest = hashlib.sha256(key.strip()).hexdigest()
        found = None
        for known, tenant in self.digests.items():
            if hmac.compare_digest(known, digest):
                found = tenant
        return found


class BodyLimit:
    """Refuses a body that is too large: by its stated length before reading, or while reading."""

    def __init__(self, app: ASGIApp, *, body_bytes: int, upload_bytes: int) -> None:
        self.app = app
        self.body_bytes = body_bytes
        self.upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what is read and stop at the limit of this path."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self._limit(scope)
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > limit:
            body = problems.problem_of(_too_large(limit, int(stated)))
            await problems.answer(body, {"connection": "close"})(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, _too_large(limit, read).message)
            return message

        await self.app(scope, counted, send)

    def _limit(self, scope: Scope) -> int:
        path, method = scope["path"], scope["method"]
        if method == "POST" and path == "/v1/files":
            return self.upload_bytes + UPLOAD_OVERHEAD
        return self.upload_bytes if method == "PUT" and "/documents/" in path else self.body_bytes


def _too_large(limit: int, came: int) -> TooLarge:
    return TooLarge(f"the body may have {limit} bytes here and {came} or more came; send less")
