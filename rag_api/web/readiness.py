"""Readiness: which part of the server is not ready, and why.

Loads the models in a thread after the start, looks over the data folder, remembers what is
damaged. Names of documents and paths go to the log; the report is for anybody, without a key.
Knows nothing of routes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from index import Finding
from index.errors import GraftError
from rag_api.supervisor import Supervisor
from rag_api.wiring import Graft

log = logging.getLogger("graft.web")
RECHECK_S = 3600.0
MAX_NAMED = 5


class Readiness:
    """What is loaded and what is wrong, of one server."""

    def __init__(self, graft: Graft, supervisor: Supervisor | None) -> None:
        self._graft = graft
        self._supervisor = supervisor
        self._stop = threading.Event()
        self._states: dict[str, str] = {"data": "starting", "embedder": "loading"}
        self._states["backbone"] = "loading"
        self._thread = threading.Thread(target=self._run, name="readiness", daemon=True)

    def start(self) -> None:
        """Load and look in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after what it is doing."""
        self._stop.set()
        self._thread.join()

    def report(self) -> tuple[bool, dict[str, Any]]:
        """Say whether all parts are ready, and how each is, in words that anybody may read."""
        parts = dict(self._states)
        if self._supervisor is not None:
            parts["worker"] = "ok" if self._supervisor.is_alive() else "not running"
        is_ready = all(state == "ok" for state in parts.values())
        return is_ready, {"status": "ready" if is_ready else "not ready", "parts": parts}

    def _run(self) -> None:
        self._load("data", self._look)
        self._load("embedder", lambda: self._graft.embedder)
        self._load("backbone", lambda: self._graft.engine)
        while not self._stop.wait(RECHECK_S):
            self._load("data", self._look)

    def _load(self, part: str, work: Callable[[], object]) -> None:
        try:
            work()
        except DamageFound as error:
            log.error("%s is damaged: %s", part, error.message)
            self._states[part] = f"damaged: {error.num_findings} finding(s); run `graft doctor`"
        except GraftError as error:
            log.error("%s is not ready: %s", part, error.message)
            self._states[part] = f"not ready ({error.code}); see the log or run `graft doctor`"
        except Exception:
            self._states[part] = "internal error; see the log"
            log.exception("%s is not ready", part)
            raise
        else:
            self._states[part] = "ok"

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
