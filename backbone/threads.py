"""Sets how many threads a process computes with and how they wait; a count in, nothing out.

Import this before torch: OpenMP reads its waiting policy once, when torch loads it. Spinning
threads on a shared core cost a factor of twenty (4,050 against 180 ms for two tokens).
Knows nothing of models.
"""

from __future__ import annotations

import os

PASSIVE_WAITING = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


def wait_passively() -> None:
    """Put passive waiting into the environment, for this process and its children.

    What the user has set stays as it is.
    """
    for name, value in PASSIVE_WAITING.items():
        os.environ.setdefault(name, value)


def pin(num_threads: int | None = None) -> int:
    """Let torch compute with `num_threads` (default: one a process); return the number in force."""
    import torch

    wanted = 1 if num_threads is None else max(1, num_threads)
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)
    return wanted
