# `make` lists the targets. Everything is installed into .venv, once: the stamps in it are renewed when
# pyproject.toml or constraints.txt change, and a target whose stamp is fresh calls pip no more.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt
DECLARED := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint types bench docs clean

help:
	@echo "Targets (another interpreter: make PYTHON=python3.12 ...):"
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name line; do printf '  make %-10s %s\n' "$$name" "$$line"; done

demo: .venv/core.stamp  ## first result, offline: compare methods on digits, write runs/demo/report.html
	$(BIN)/homeward demo

test: lint types  ## everything: lint, types, then the whole test suite
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-fast: .venv/all.stamp  ## the developer's loop: tests that are neither slow nor need a browser
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not browser"

lint: .venv/all.stamp  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/all.stamp  ## mypy, strict, on src
	$(BIN)/mypy

bench: .venv/all.stamp  ## speed as ratios on this machine, one JSON line a size
	$(BIN)/python -m benchmarks.speed all

docs: .venv/all.stamp  ## the documentation as pages in site/
	$(BIN)/mkdocs build --strict --site-dir site

clean:  ## remove .venv, caches and built pages (runs/ stays)
	rm -rf .venv site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "homeward needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing)." \
	       "Name a newer one: make PYTHON=python3.12 $(or $(MAKECMDGOALS),demo)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

.venv/core.stamp: $(DECLARED) .venv/venv.stamp
	$(PIP) --editable .
	touch $@

# torch first and by its exact version: small machines are then served a build for the CPU.
.venv/all.stamp: $(DECLARED) .venv/venv.stamp
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[all,dev]'
	touch .venv/core.stamp $@
