# make demo: set up, ingest the sample corpus, answer a claim.  make test: set up, then lint, types and tests.
# Only Python 3.11 or newer (PYTHON=...) with its venv module is needed.

PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/python -m uv --quiet
SOURCES := pyproject.toml Makefile

.PHONY: demo test lint types check clean
.DELETE_ON_ERROR:

demo: .venv/.models
	$(BIN)/ccheck demo

test: lint types check

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The types of the package as a user gets it: built, and installed on its own.
types: .venv/.dev
	rm -rf build
	$(UV) pip install --no-deps --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy -p ccheck

check: .venv/.dev
	$(BIN)/pytest $(PYTEST)

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ccheck needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv

.venv/.models: .venv/bin/python $(SOURCES)
	$(UV) pip install -e '.[models]'
	touch $@

.venv/.dev: .venv/bin/python $(SOURCES)
	$(UV) pip install -e '.[dev]'
	touch $@ .venv/.models

clean:
	rm -rf .venv build dist *.egg-info
