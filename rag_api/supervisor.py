"""Keeps one worker process alive beside the server: starts, watches, restarts, stops it.

Settings go in; whether the worker lives comes out. Knows nothing of jobs or of HTTP.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading

from rag_api.settings import Settings

log = logging.getLogger("graft.supervisor")
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
STEADY_S = 60.0
"""A worker that lived this long begins again with the first delay."""
STOP_S = 8.0


class Supervisor:
    """Owns the worker process; it only ever ends the process that it started itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the worker and watch it."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Say whether a worker runs now."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        """End the worker by closing its input; after a while, by force."""
        self._stop.set()
        process = self._process
        if process is not None:
            _close_input(process)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._thread.join()

    def _watch(self) -> None:
        delay = FIRST_DELAY_S
        while not self._stop.is_set():
            process = self._spawn()
            try:
                process.wait(STEADY_S)
            except subprocess.TimeoutExpired:
                delay = FIRST_DELAY_S
                process.wait()
            if self._stop.is_set():
                return
            log.warning("the worker ended with %s; it is started again", process.returncode)
            _close_input(process)
            self._stop.wait(delay)
            delay = min(LONGEST_DELAY_S, delay * 2)

    def _spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "rag_api.worker"], stdin=subprocess.PIPE, stdout=sys.stderr
        )
        self._process = process
        assert process.stdin is not None
        line = json.dumps(self._settings.for_worker()) + "\n"
        try:
            process.stdin.write(line.encode())
            process.stdin.flush()
        except BrokenPipeError:
            log.warning("the worker ended before it read its settings")
        if self._stop.is_set():  # stop() may have come before there was anything to stop
            _close_input(process)
        return process


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:
            return
