"""What a caller holds of a submitted request: events as they come, cancel, and the result.

Knows nothing of models; the engine's worker fills it from another thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from decoding.records import Completion, FinishReason, Request, Timings, TokenEvent, Usage
from decoding.rows import joined


class Handle:
    """One submitted request. Iterate it (as often as you like), `cancel()` it, take `result()`.

    An error of the worker is raised from the iterator and from `result()`.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._changed = threading.Condition()
        self._events: list[TokenEvent] = []
        self._completion: Completion | None = None
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._is_started = False
        self._submitted = time.monotonic()
        self._started = self._decoding = self._submitted

    @property
    def is_cancelled(self) -> bool:
        """Say whether the caller asked to stop."""
        return self._is_cancelled

    @property
    def is_done(self) -> bool:
        """Say whether the request has ended, well or not."""
        return self._completion is not None or self._error is not None

    def __iter__(self) -> Iterator[TokenEvent]:
        """Give every event from the first on, waiting for those to come."""
        num = 0
        while fresh := self._after(num):
            yield from fresh
            num += len(fresh)

    def cancel(self) -> None:
        """Stop within one step; a request that still waits in the queue ends at once."""
        with self._changed:
            self._is_cancelled = True
            if not self._is_started and not self.is_done:
                self._complete("cancelled")

    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the end. Raises TimeoutError after `timeout` seconds, or the worker's error."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.is_done, timeout):
                raise TimeoutError(f"the request was not done after {timeout} s")
            if self._error is not None:
                raise self._error
            assert self._completion is not None
            return self._completion

    def start(self) -> bool:
        """Take it from the queue (worker); False where it has ended there."""
        with self._changed:
            self._is_started = not self.is_done
            self._started = self._decoding = time.monotonic()
            return self._is_started

    def mark_prefilled(self) -> None:
        """Note that the prompt is read (worker)."""
        self._decoding = time.monotonic()

    def publish(self, events: Sequence[TokenEvent]) -> None:
        """Show further events (worker)."""
        with self._changed:
            self._events.extend(events)
            self._changed.notify_all()

    def complete(self, reason: FinishReason) -> None:
        """End it well (worker)."""
        with self._changed:
            if not self.is_done:
                self._complete(reason)

    def fail(self, error: BaseException) -> None:
        """End it with an error (worker)."""
        with self._changed:
            if not self.is_done:
                self._error = error
            self._changed.notify_all()

    def _after(self, num: int) -> list[TokenEvent]:
        """Wait for events after the first `num`; none are left where the list is empty."""
        with self._changed:
            self._changed.wait_for(lambda: num < len(self._events) or self.is_done)
            fresh = self._events[num:]
            if not fresh and self._error is not None:
                raise self._error
            return fresh

    def _complete(self, reason: FinishReason) -> None:
        now = time.monotonic()
        decoding = self._decoding if self._is_started else now
        started = self._started if self._is_started else now
        self._completion = Completion(
            text=joined(self._events),
            ids=tuple(event.id for event in self._events),
            finish_reason=reason,
            tokens=tuple(self._events),
            usage=Usage(len(self.request.prompt), len(self._events)),
            timings=Timings(started - self._submitted, decoding - started, now - decoding),
        )
        self._changed.notify_all()
