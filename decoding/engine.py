"""Requests come in from any thread, token events go out; one worker thread owns the backbone.

Today's schedule is one row at a time, first come first served.
Knows nothing of stores, retrieval, HTTP, or of what any shaper does.
"""

from __future__ import annotations

import logging
import queue
import threading
from types import TracebackType

import torch

from backbone import Forward, LanguageModel
from decoding.cache import KV
from decoding.checking import check
from decoding.handles import Handle
from decoding.protocols import StepView
from decoding.records import Request
from decoding.rows import Row
from index.errors import Busy, Cancelled, Conflict

_log = logging.getLogger(__name__)


class Engine:
    """Runs requests on one backbone. Close it (or use it as a context manager) to end its thread.

    `max_queue` is how many requests may wait; more are refused with Busy.
    """

    def __init__(self, model: LanguageModel, *, max_queue: int = 256, chunk: int = 512) -> None:
        self.model = model
        self._chunk = chunk
        self._queue: queue.Queue[Handle | None] = queue.Queue(max_queue)
        self._lock = threading.Lock()
        self._running: Handle | None = None
        self._is_closed = False
        self._worker = threading.Thread(target=self._work, name="graft-engine", daemon=True)
        self._worker.start()

    def submit(self, request: Request) -> Handle:
        """Queue a request.

        Raises InvalidInput or FingerprintMismatch for what cannot be served (nothing is queued),
        Busy when too many wait, Conflict when the engine is closed.
        """
        check(request, self.model)
        handle = Handle(request)
        with self._lock:
            if self._is_closed:
                raise Conflict("the engine is closed; open a new one")
            try:
                self._queue.put_nowait(handle)
            except queue.Full:
                raise Busy(
                    f"{self._queue.maxsize} requests wait already; try again later"
                ) from None
        return handle

    def close(self) -> None:
        """Cancel what runs and what waits, and end the worker. Safe to call twice."""
        with self._lock:
            self._is_closed = True
            if self._running is not None:
                self._running.cancel()
            self._cancel_waiting()
            if self._worker.is_alive():
                self._queue.put(None)
        self._worker.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _cancel_waiting(self) -> None:
        while True:
            try:
                handle = self._queue.get_nowait()
            except queue.Empty:
                return
            if handle is not None:
                handle.cancel()

    def _work(self) -> None:
        """Serve until closed. No error ends the thread: each reaches the handle it belongs to."""
        with torch.inference_mode():
            while (handle := self._queue.get()) is not None:
                with self._lock:
                    self._running = handle
                    if self._is_closed:
                        handle.cancel()
                try:
                    if handle.start():
                        self._run(handle)
                except Exception as error:  # noqa: BLE001 - the thread's border: raised by the handle
                    _log.warning("a request failed: %s", error, exc_info=error)
                    handle.fail(error)
                finally:
                    self._running = None

    def _run(self, handle: Handle) -> None:
        """Run one request from prompt to end."""
        row = Row(handle.request, self.model)
        kv = KV(self.model, chunk=self._chunk)
        try:
            forward = kv.prefill(row.sequence, cancelled=lambda: handle.is_cancelled)
            handle.mark_prefilled()
            while True:
                handle.publish(row.advance(_view(row, forward), 0))
                if row.reason is None and handle.is_cancelled:
                    handle.publish(row.finish("cancelled"))
                if row.reason is not None:
                    break
                forward = kv.step(row.sequence[-1:])
            handle.complete(row.reason)
        except Cancelled:
            handle.complete("cancelled")
        finally:
            kv.drop()


def _view(row: Row, forward: Forward) -> StepView:
    """Show the last step of a single row."""
    assert forward.logits is not None
    valid = torch.ones(forward.logits.shape[:2], dtype=torch.bool, device=forward.logits.device)
    return StepView((row.sequence,), forward.logits, forward.keys, valid)
