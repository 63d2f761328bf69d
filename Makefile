# The one door to the project: every recipe sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
READY := $(VENV)/.ready
# What was compiled once is not compiled again by each of a dozen processes.
unexport PYTHONDONTWRITEBYTECODE
# Tests without Ray wait more than they compute.
WORKERS ?= 4

.PHONY: help setup demo demo-ui browser test check unit e2e pythons pins bench bench-smoke docs clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# One environment, which a recipe widens by the extras that it needs.
$(READY)-demo $(READY)-demo-ui $(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@ $(COVERED)

$(READY)-demo: EXTRAS := ray,server
$(READY)-demo-ui: EXTRAS := dashboard,ray
$(READY)-demo-ui: COVERED := $(READY)-demo
$(READY): EXTRAS := dev
$(READY): COVERED := $(READY)-demo $(READY)-demo-ui

setup: $(READY)  ## create .venv with the pinned dependencies

demo: $(READY)-demo  ## start two real local clusters, show what the scheduler does, stop them
	$(BIN)/python -m raymc_demo

demo-ui: $(READY)-demo-ui  ## start two real local clusters and a server with the dashboard, with jobs on them, until Ctrl-C
	$(BIN)/python -m raymc_demo.ui

browser:  ## install chromium from Debian's packages, where that is possible; without it pages are not tested
	@command -v chromium >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	|| echo "NO BROWSER: the tests of the dashboard's pages will be skipped; install Debian's package chromium" >&2

NO_RAY := -m "not ray and not slow and not browser and not bench" --numprocesses $(WORKERS) --dist worksteal

# A stage that fails does not keep the others from running. Tests on real Ray wait most of the time, so they run
# beside the others; what they print comes at the end.
RAY := -m "ray and not slow"
RAY_LOG := build/ray-tests.log

test: $(READY) browser  ## what CI runs: linters, types and tests, those on real Ray clusters included, but the slowest
	@mkdir -p build; failed=; $(PYTEST) $(RAY) >$(RAY_LOG) 2>&1 & ray=$$!; \
	trap 'kill -INT $$ray; wait $$ray; exit 130' INT; \
	stage() { echo "== $$1"; shift; "$$@"; }; \
	stage "linters and types" $(MAKE) --no-print-directory check || failed="$$failed [check]"; \
	stage "tests without Ray" $(PYTEST) $(NO_RAY) || failed="$$failed [without Ray]"; \
	stage "tests in a browser" $(PYTEST) tests/browser -m "not slow" --numprocesses 2 --dist loadfile || failed="$$failed [browser]"; \
	wait $$ray || failed="$$failed [Ray]"; \
	stage "tests on real Ray clusters" cat $(RAY_LOG); \
	test -z "$$failed" || { echo "make test: failed:$$failed" >&2; exit 1; }

check: $(READY)  ## linters, types, and declared dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py tests/compat/typed_program.py
	$(BIN)/basedpyright
	$(PYTEST) --quiet tests/unit/test_dependencies.py

unit: $(READY)  ## the tests of single modules, which need nothing but Python
	$(PYTEST) tests/unit $(NO_RAY)

e2e: $(READY)  ## the tests on real Ray clusters, and all others that are slow
	$(PYTEST) -m "ray or slow"

pythons: $(READY)  ## install and import on every Python that is promised; unit tests on the oldest and the newest
	$(PIP) uv
	$(BIN)/python -m tests.pythons

# Versions that are pinned stay as they are where they fit; UPGRADE=--upgrade takes the newest.
pins: $(BIN)/python  ## write constraints.txt anew, for every Python from 3.10 on
	$(PIP) uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev --no-annotate --no-header $(UPGRADE) \
	  --output-file constraints.txt pyproject.toml

bench-smoke: $(READY)  ## run each benchmark that needs no Ray in its smallest size
	$(PYTEST) tests/integration/test_benchmarks.py -m bench

bench: $(READY)  ## measure, as ratios to a peer in the same run
	$(BIN)/python -m benchmarks

docs: $(READY)  ## build the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

clean:  ## remove what the recipes made
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
