"""Answers as server-sent events, and a watch for clients that go away.

An answer on its way goes in, ASGI messages come out. A fault after the first token is an error
event and never a clean end. Knows nothing of how answers are made.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from index.errors import Busy, Cancelled, GraftError
from rag_api.services.questions import Answered, Piece, piece_json
from rag_api.web import problems, views
from rag_api.web.dependencies import wait_in_thread
from rag_api.web.markers import MarkerFilter
from rag_api.web.schemas import ChatRequest

log = logging.getLogger("graft.web")
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
DONE = b"data: [DONE]\n\n"


class OnItsWay(Protocol):
    """An answer that is being made."""

    @property
    def num_passages(self) -> int | None: ...

    def __iter__(self) -> Iterator[Piece]: ...

    def cancel(self) -> None: ...

    def finish(self) -> Answered: ...


async def finish_unless_gone(answering: OnItsWay, request: Request) -> Answered:
    """Wait for a whole answer; a client that goes away stops it."""
    is_gone = False

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        answering.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_gone, request.receive, gone)
        try:
            answered = await wait_in_thread(answering.finish)
        except GraftError as error:
            tasks.cancel_scope.cancel()
            failure: GraftError | None = error
        else:
            tasks.cancel_scope.cancel()
            failure = None
    if failure is not None:  # raised out here: a task group would wrap it in a group of errors
        raise failure
    if answered.finish_reason == "cancelled":
        raise Cancelled("the client went away") if is_gone else _stopped()
    return answered


async def _cancel_when_gone(receive: Receive, cancel: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel()


def _stopped() -> Busy:
    return Busy("the server stopped this answer before its end; ask again")


class EventStream(Response):
    """An ASGI response that sends an answer's tokens as they come."""

    def __init__(self, answering: OnItsWay, body: ChatRequest) -> None:
        self.status_code = 200
        self.media_type = "text/event-stream"
        self.background = None
        self.init_headers(HEADERS)  # without a body, so no content-length
        self._answering = answering
        self._request = body
        self._id = f"chatcmpl-{views.new_id()}"
        self._created = int(time.time())
        self._is_gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; stop the work when the client goes away or the server ends."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_gone, receive, self._gone)
                await self._send_all(send)
                tasks.cancel_scope.cancel()
        finally:
            self._answering.cancel()

    def _gone(self) -> None:
        self._is_gone = True
        self._answering.cancel()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for event in self._events():
            if self._is_gone:
                return
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            async for event in self._chunks():
                yield event
        except GraftError as error:
            yield _event({"error": problems.problem_of(error)["error"]})
        except Exception:
            log.exception("a stream failed after it began")
            failure = {"message": "an internal error", "type": "server_error", "param": None}
            yield _event({"error": {**failure, "code": "internal_error"}})
        else:
            yield DONE

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})
        iterator = iter(self._answering)
        markers = MarkerFilter(self._answering.num_passages)
        while (piece := await wait_in_thread(next, iterator, None)) is not None:
            words = markers.feed(piece.text)
            if words or self._request.logprobs or "tokens" in self._request.include:
                yield self._chunk({"content": words}, **self._about(piece))
        if words := markers.rest():
            yield self._chunk({"content": words})
        answered = await wait_in_thread(self._answering.finish)
        if answered.finish_reason == "cancelled":  # to a client that went away nothing is sent
            raise _stopped()
        annotations = [views.annotation(quote, i) for i, quote in enumerate(answered.citations)]
        yield self._chunk(
            {"annotations": annotations} if annotations else {},
            finish=views.finish_reason(answered),
            more={"graft": views.extras(answered, self._request.include)},
        )
        options = self._request.stream_options
        if options is not None and options.include_usage:
            yield self._chunk(None, more={"usage": views.usage(answered)})

    def _about(self, piece: Piece) -> dict[str, Any]:
        about: dict[str, Any] = {}
        if self._request.logprobs:
            shown = views.logprobs([piece], num_top=self._request.top_logprobs or 0)
            about["choice"] = {"logprobs": shown}
        if "tokens" in self._request.include:
            about["more"] = {"graft": {"tokens": [piece_json(piece)]}}
        return about

    def _chunk(self, delta: Mapping[str, Any] | None, **rest: Any) -> bytes:
        return _event(
            views.chunk(self._id, self._request.model, self._created, delta=delta, **rest)
        )


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
