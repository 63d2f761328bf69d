# The one door to the project: every recipe sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests without Ray wait more than they compute.
WORKERS ?= 4

.PHONY: help setup demo demo-ui browser test check unit e2e bench docs clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

setup: $(READY)  ## create .venv with the pinned dependencies

demo: $(READY)  ## start two real local clusters, show what the scheduler does, stop them
	$(BIN)/python -m ray_multicluster_scheduler.demo

demo-ui: $(READY)  ## start two real local clusters and a server with the dashboard, with jobs on them, until Ctrl-C
	$(BIN)/python -m ray_multicluster_scheduler.demo.ui

browser:  ## install chromium from Debian's packages, where that is possible; without it pages are not tested
	@command -v chromium >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	|| echo "NO BROWSER: the tests of the dashboard's pages will be skipped; install Debian's package chromium" >&2

test: check browser  ## what CI runs: linters, types and tests, those on real Ray clusters included, but the slowest
	$(BIN)/python -m pytest -m "not ray and not slow and not browser" --numprocesses $(WORKERS) --dist worksteal
	$(BIN)/python -m pytest tests/browser -m "not slow" --numprocesses 2 --dist loadfile
	$(BIN)/python -m pytest -m "ray and not slow"

check: $(READY)  ## linters and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(READY)  ## the tests that need neither Ray nor a browser
	$(BIN)/python -m pytest -m "not ray and not slow and not browser" --numprocesses $(WORKERS) --dist worksteal

e2e: $(READY)  ## the tests on real Ray clusters, and all others that are slow
	$(BIN)/python -m pytest -m "ray or slow"

bench: $(READY)  ## measure, as ratios to a peer in the same run
	$(BIN)/python -m benchmarks

docs: $(READY)  ## build the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

clean:  ## remove what the recipes made
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
