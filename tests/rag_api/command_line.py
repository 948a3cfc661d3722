"""Runs `graft`: in this process, or in one of its own, with the same arguments and environment."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rag_api.cli import main


@dataclass(frozen=True)
class Done:
    """What a command wrote, and its exit code."""

    code: int
    stdout: bytes
    stderr: bytes


class InProcess:
    """Runs `main()` here: all of the command line but the start of Python and of torch."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables

    def __call__(self, *arguments: str, code: int = 0) -> Done:
        done = self._run(arguments)
        assert done.code == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        """Run a command with `--json` and read what it printed."""
        return json.loads(self(*arguments, "--json").stdout)

    def _run(self, arguments: tuple[str, ...]) -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            variables(self.variables),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            arguments_of("graft", *arguments),
        ):
            try:
                main()
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        return Done(code, _written(out), _written(err))


class InItsOwn(InProcess):
    """Runs `python -m rag_api.cli` as a process, as users do."""

    def _run(self, arguments: tuple[str, ...]) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "rag_api.cli", *arguments],
            env=self.variables,
            capture_output=True,
            timeout=240,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def _written(stream: io.TextIOWrapper) -> bytes:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


@contextlib.contextmanager
def variables(wanted: dict[str, str]) -> Iterator[None]:
    """Have exactly this environment for a while."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def arguments_of(*argv: str) -> Iterator[None]:
    """Have exactly this command line for a while."""
    before, sys.argv = sys.argv, list(argv)
    try:
        yield
    finally:
        sys.argv = before


def clean_environment(more: dict[str, str]) -> dict[str, str]:
    """This environment without settings of Graft, and with these variables."""
    return {k: v for k, v in os.environ.items() if not k.startswith("GRAFT_")} | more
