# Make targets for people: `make demo` and `make test` need Python 3.11 or later, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO := fixtures/demo/fsdp_train_step.opt.hlo

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench readme clean

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: $(VENV)/.installed ## Install into .venv and inspect a fixture
	$(BIN)/hlolens inspect $(DEMO)

test: $(VENV)/.installed-test ## Install into .venv and run the tests
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test ## Measure speed and memory
	$(BIN)/python -m benchmarks

readme: $(VENV)/.installed-test ## Run the README's commands and put their output in place
	$(BIN)/python -m tests.test_readme

clean: ## Remove .venv, caches and build products
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'hlolens needs Python 3.11 or later; name one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo 'Python has no venv module here; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@echo 'making $(VENV)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo 'installing hlolens'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	@echo 'installing the test extra'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo 'installing the dev extra'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test
