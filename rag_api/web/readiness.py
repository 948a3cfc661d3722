"""Readiness: which part of the server is not ready, and why.

Loads the models in a thread after the start, looks over the data folder, remembers what is
damaged. Names of documents and paths go to the log; the report is for anybody, without a key.
Knows nothing of routes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from index import Finding
from index.errors import GraftError
from rag_api.supervisor import Supervisor
from rag_api.wiring import Graft

log = logging.getLogger("graft.web")
RECHECK_S = 3600.0
RETRY_S = 30.0
"""After this time what was not ready is tried again: a model may be there now, data repaired."""
MAX_NAMED = 5


class Readiness:
    """What is loaded and what is wrong, of one server."""

    def __init__(self, graft: Graft, supervisor: Supervisor | None) -> None:
        self._graft = graft
        self._supervisor = supervisor
        self._is_stopped = False
        self._wake = threading.Event()
        self._parts: dict[str, Callable[[], object]] = {
            "embedder": lambda: self._graft.embedder,
            "backbone": lambda: self._graft.engine,
            "data": self._look,
        }
        self._states = dict.fromkeys(self._parts, "loading")
        self._thread = threading.Thread(target=self._run, name="readiness", daemon=True)

    def start(self) -> None:
        """Load and look in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after what it is doing."""
        self._is_stopped = True
        self._wake.set()
        self._thread.join()

    def suspect(self) -> None:
        """Look over the data folder now: a request met damage."""
        self._states["data"] = "damaged: being looked at; run `graft doctor`"
        self._wake.set()

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Say whether all parts are ready, and how each is, in words that anybody may read."""
        parts = dict(self._states)
        if self._supervisor is not None:
            parts["worker"] = "ok" if self._supervisor.is_alive() else "not running"
        is_ready = all(state == "ok" for state in parts.values())
        return is_ready, {"status": "ready" if is_ready else "not ready", "parts": parts}

    def _run(self) -> None:
        self._try(self._parts)
        while not self._is_stopped:
            failed = [part for part, state in self._states.items() if state != "ok"]
            is_woken = self._wake.wait(RETRY_S if failed else RECHECK_S)
            self._wake.clear()
            if not self._is_stopped:
                self._try(failed if failed and not is_woken else ["data"])

    def _try(self, parts: Iterable[str]) -> None:
        for part in parts:
            self._states[part] = self._state_of(part)

    def _state_of(self, part: str) -> str:
        try:
            self._parts[part]()
        except DamageFound as error:
            log.error("%s is damaged: %s", part, error.message)
            return f"damaged: {error.num_findings} finding(s); run `graft doctor`"
        except GraftError as error:
            log.error("%s is not ready: %s", part, error.message)
            return f"not ready ({error.code}); see the log or run `graft doctor`"
        except Exception:  # the border of the thread: said in the report, and tried again
            log.exception("%s is not ready", part)
            return "internal error; see the log"
        return "ok"

    def _look(self) -> None:
        if findings := self._graft.index.check():
            raise DamageFound(findings)


class DamageFound(GraftError):
    """Some files of the data folder are not what the catalogue says."""

    code = "damaged"

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.num_findings = len(findings)
        named = "; ".join(finding.message for finding in findings[:MAX_NAMED])
        super().__init__(f"{len(findings)} finding(s): {named}")
