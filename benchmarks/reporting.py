"""Turn what a benchmark measured into one JSON object that says where and with what it ran.

In: figures, settings, a seed. Out: the object `{name, figures, settings, machine, versions, seed}`,
printed as one line, kept under benchmarks/results by full runs. Knows nothing of what is measured.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
VERSIONED = (
    "graftlm", "torch", "transformers", "sentence-transformers", "faiss-cpu", "numpy", "sqlalchemy",
)  # fmt: skip


class MissingData(Exception):
    """A corpus or model that the benchmark needs is not on this machine; the message says which."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a benchmark gives: figures by name, and what they depend on."""

    figures: Mapping[str, object]
    settings: Mapping[str, object]
    seed: int


Benchmark = Callable[[bool], Measured]
"""Takes `quick` (end within 50 seconds) and measures."""


def corpus(name: str) -> Path:
    """Give a corpus folder beside the checkout (or under $GRAFT_SHARED_DATA)."""
    folder = Path(os.environ.get("GRAFT_SHARED_DATA", ROOT.parent / "shared" / "data")) / name
    if not folder.is_dir():
        raise MissingData(f"the corpus {name!r} is missing; set GRAFT_SHARED_DATA to its folder")
    return folder


def models_folder() -> Path:
    """Give the folder of converted models, shared with the service."""
    default = Path.home() / ".cache" / "graft" / "models"
    return Path(os.environ.get("GRAFT_MODELS_DIR", default))


def machine() -> dict[str, object]:
    """Describe the machine without naming it."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def versions() -> dict[str, str]:
    """Name the versions of what decides speed and results."""
    return {name: importlib.metadata.version(name) for name in VERSIONED}


def report(name: str, measured: Measured) -> dict[str, object]:
    """Make the object that a run prints and keeps."""
    return {
        "name": name,
        "figures": dict(measured.figures),
        "settings": dict(measured.settings),
        "machine": machine(),
        "versions": versions(),
        "seed": measured.seed,
    }


def save(outcome: Mapping[str, object]) -> Path:
    """Keep a full run's report under its name."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{outcome['name']}.json"
    path.write_text(json.dumps(outcome, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def say(message: str) -> None:
    """Tell a watcher how far the run is, on the error stream: the last output line stays JSON."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Paired:
    """Two ways to do the same work, measured in turns: medians of seconds, and how fast ours is.

    `speed` and `cpu_speed` are medians over the rounds of (their time / our time), by the clock
    and by the processor time of this process and its ended children: above 1, ours is faster.
    """

    ours_s: float
    theirs_s: float
    speed: float
    cpu_speed: float


def interleaved(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> Paired:
    """Time two ways in turns, each first every other time: a neighbour's load falls on both."""
    mine: list[tuple[float, float]] = []
    other: list[tuple[float, float]] = []
    for number in range(rounds):
        order = [(mine, ours), (other, theirs)]
        for times, work in order if number % 2 == 0 else reversed(order):
            times.append(_timed(work))
    return Paired(
        ours_s=statistics.median(wall for wall, _ in mine),
        theirs_s=statistics.median(wall for wall, _ in other),
        speed=statistics.median(b[0] / a[0] for a, b in zip(mine, other, strict=True)),
        cpu_speed=statistics.median(b[1] / a[1] for a, b in zip(mine, other, strict=True)),
    )


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Give the seconds that some work took, by the clock and by the processor."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - wall, sum(os.times()[:4]) - cpu
