"""Run one benchmark by name and print its report as the last line of the output.

In: a name, and `--quick` for a run that ends within 50 seconds. Out: one JSON object; a full run
also keeps it under benchmarks/results. Knows nothing of what each benchmark measures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from reporting import MissingData, report, save, say

BENCHMARKS = {
    "ingest": "ingest",
    "search": "search",
    "retrieval-quality": "retrieval_quality",
    "planted-facts": "planted_facts",
}


def main(argv: list[str]) -> int:
    """Parse the command line, measure, report; 2 where the name or its data is missing."""
    parser = argparse.ArgumentParser(description="Run one benchmark.")
    parser.add_argument("name", nargs="?", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds, keep nothing")
    parser.add_argument("--list", action="store_true", help="list the names and stop")
    arguments = parser.parse_args(argv)
    if arguments.list or arguments.name not in BENCHMARKS:
        say(f"expected NAME to be one of {', '.join(BENCHMARKS)}, got {arguments.name!r}")
        return 2
    module = importlib.import_module(BENCHMARKS[arguments.name])
    try:
        outcome = report(arguments.name, module.measure(arguments.quick))
    except MissingData as error:
        say(f"{arguments.name} cannot run here: {error}")
        return 2
    if not arguments.quick:
        say(f"kept in {save(outcome)}")
    print(json.dumps(outcome, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
