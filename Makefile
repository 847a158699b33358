# make demo       install the core and run Fading Flash with its report (at most 5 minutes on 2 cores)
# make test       install the dev extra; ruff, mypy, import rules and the fast tests (at most 12 minutes)
# make test-all   the same, then the slow tests
# make test-gpu   the tests that need a CUDA device, with the Python on PATH (PYTHON=…)
# make docs       build the documentation into site/
# make tables     put the tables of the committed records into the pages of docs/reproduce
# PARALLEL=…      how pytest spreads the tests, two processes by default (PARALLEL= for one)
# PIP_ARGS=…      passed to every pip install, e.g. PIP_ARGS="--no-index --find-links wheels"

PYTHON ?= python3
PIP_ARGS ?=
PARALLEL ?= -n 2 --dist loadfile
VENV := .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS)

.PHONY: demo test test-all test-gpu lint docs tables clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

$(BIN)/python:
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# A stamp per set of extras: installing again is a no-op until pyproject or the constraints change.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing tides-ssm[$*] (torch pinned by constraints.txt)"
	@$(PIP) torch
	@$(PIP) --editable ".[$*]"
	@touch $@

demo: $(VENV)/.installed-plots
	@echo "==> Fading Flash: training every model with ten seeds, then the report"
	@$(BIN)/tides run fading-flash
	@$(BIN)/tides report fading-flash

lint: $(VENV)/.installed-dev
	@echo "==> ruff, mypy, import rules"
	@$(BIN)/ruff check src tests examples
	@$(BIN)/ruff format --check src tests examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

test: lint
	@echo "==> fast tests (skips are listed with their reasons)"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL)

test-all: lint
	@echo "==> all tests that need no GPU"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) -m "not gpu"

test-gpu:
	@echo "==> GPU tests with $(PYTHON)"
	@PYTHONPATH=src $(PYTHON) -m pytest -m gpu

docs: $(VENV)/.installed-docs
	@$(BIN)/mkdocs build --strict

tables: $(VENV)/.installed-dev
	@for name in uea physiome random-drop anytime ablations efficiency; do \
		if ls results/$$name/records/*.json >/dev/null 2>&1; then \
			echo "==> docs/reproduce/$$name.md"; \
			$(BIN)/tides report $$name --in results/$$name --into docs/reproduce/$$name.md >/dev/null || exit 1; \
		fi; \
	done

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
