"""What a process of ours must do before torch is imported: threads, waiting, no network.

Settings go in; environment variables of this process (and so of its children) are set.
Knows nothing of models.
"""

from __future__ import annotations

import os
import sys

from rag_api.settings import Settings


def num_threads(settings: Settings) -> int:
    """Give the threads of one process: as set, or half the cores that it may use."""
    return settings.threads or max(1, (len(os.sched_getaffinity(0)) + 1) // 2)


def prepare(settings: Settings) -> None:
    """Set thread counts and passive waiting; a variable that is set already is kept.

    OpenMP reads these once, when torch loads it: afterwards they would change nothing, and
    spinning threads on shared cores cost a factor of ten and more.
    """
    assert "torch" not in sys.modules or "OMP_WAIT_POLICY" in os.environ
    for name, value in {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "OMP_NUM_THREADS": str(num_threads(settings)),
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }.items():
        os.environ.setdefault(name, value)


def forbid_network() -> None:
    """Keep the hub's client from asking for anything in this process (questions, serving)."""
    os.environ["HF_HUB_OFFLINE"] = "1"
