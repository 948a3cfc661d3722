# `make demo` shows Graft, `make test` tests it. Both first make .venv where it is missing or
# older than requirements.lock, so neither needs anything but Python 3.11 and this folder.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed-from-lock
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then \
	command -v $$p; break; fi; done)

# Passive waiting before torch is imported anywhere: spinning threads starve neighbours on a core.
export OMP_WAIT_POLICY := PASSIVE
export GOMP_SPINCOUNT := 0
export TOKENIZERS_PARALLELISM := false

.PHONY: help setup demo test serve check bench tables clean
help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(STAMP) ## make .venv from requirements.lock

demo: export HF_HUB_OFFLINE := 1
demo: $(STAMP) ## ingest real documents and answer three questions (DOCS=path: your own)
	@$(PY) -m rag_api.demo $(if $(DOCS),--docs "$$DOCS")

test: export HF_HUB_OFFLINE := 1
test: $(STAMP) ## run all tests, the slow ones too (ARGS='-k name' for some)
	@$(PY) -m pytest -q $(ARGS)

serve: $(STAMP) ## serve the API and the page (ARGS='--port 8080' for more)
	@$(VENV)/bin/graft serve $(ARGS)

check: $(STAMP) ## ruff, mypy, import-linter, the gates on code and documents
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m mypy --strict benchmarks/*.py docs/*.py .ci/gates.py
	$(VENV)/bin/lint-imports --no-cache
	$(PY) .ci/gates.py
	$(PY) docs/check.py
	$(PY) docs/tables.py

bench: export HF_HUB_OFFLINE := 1
bench: $(STAMP) ## run one benchmark: NAME=ingest|search|… [QUICK=1]
	@test -n "$(NAME)" || { $(PY) benchmarks/run.py --list; exit 2; }
	@$(PY) benchmarks/run.py "$(NAME)" $(if $(QUICK),--quick)

tables: $(STAMP) ## write the pages' tables anew from benchmarks/results
	@$(PY) docs/tables.py --write

clean: ## remove caches and the demo's data (never .venv, never the models)
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	  echo "Graft needs Python 3.11 and found none on the PATH; install it (with its venv module)," >&2; \
	  echo "or say where it is: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@"$(PYTHON)" -m venv $(VENV) || { \
	  echo "$(PYTHON) could not make $(VENV): is its venv module installed (python3.11-venv)?" >&2; exit 1; }
	@echo "Installing from requirements.lock into $(VENV) …"
	@quiet=$$(test -t 1 || echo --quiet); \
	$(PY) -m pip install $$quiet --disable-pip-version-check -r requirements.lock; \
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
