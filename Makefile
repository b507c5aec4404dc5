# Make targets for people: `make demo` and `make test` need Python 3.11 or later, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO := fixtures/demo/fsdp_train_step.opt.hlo

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench readme figures fixtures notebooks clean

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(VENV)/.installed ## Install into .venv and inspect a fixture
	$(BIN)/hlolens inspect $(DEMO)

test: $(VENV)/.installed-test ## Install into .venv and run the tests
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/testing/typed_use.py

bench: $(VENV)/.installed-test ## Measure speed and memory
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.diff

readme: $(VENV)/.installed-test ## Run the README's commands and put their output in place
	$(BIN)/python -m tests.test_readme

figures: $(VENV)/.installed-test ## Draw the figures of docs/figures/ from the fixtures
	$(BIN)/python -m fixtures.figures

# jax 0.11 needs Python 3.12 or later; its plugins are released for one version of jaxlib each.
FIXTURES_VENV ?= .venv-fixtures
FIXTURES_ARGS ?=
FIXTURES_PYTHON ?= $(shell .ci/python312)
JAX := jax==0.11.0 jaxlib==0.11.0 libtpu==0.0.44
ROCM := jax-rocm7-plugin==0.11.0.post1 jax-rocm7-pjrt==0.11.0.post1
PLUGINS := jax-cuda13-plugin==0.11.0 jax-cuda13-pjrt==0.11.0 nvidia-cuda-nvcc nvidia-nvvm $(ROCM)

fixtures: $(FIXTURES_VENV)/.installed-plugins ## Build the committed HLO of the reference models
	$(FIXTURES_VENV)/bin/python -m fixtures build $(FIXTURES_ARGS)

notebooks: $(FIXTURES_VENV)/.installed-notebook ## Execute the notebooks of examples/ in place
	$(FIXTURES_VENV)/bin/python -m tests.test_examples

$(FIXTURES_VENV)/.installed-jax: pyproject.toml
	@test -n '$(FIXTURES_PYTHON)' || { \
	  echo 'jax 0.11 needs Python 3.12 or later; name one: make FIXTURES_PYTHON=... fixtures' >&2; \
	  exit 1; }
	@echo 'making $(FIXTURES_VENV) with jax 0.11'
	@$(FIXTURES_PYTHON) -m venv $(FIXTURES_VENV)
	@$(FIXTURES_VENV)/bin/python -m pip install -q --disable-pip-version-check $(JAX) -e '.[aot]'
	@touch $@

$(FIXTURES_VENV)/.installed-plugins: $(FIXTURES_VENV)/.installed-jax
	@$(FIXTURES_VENV)/bin/python -m pip install -q --disable-pip-version-check $(PLUGINS)
	@touch $@

$(FIXTURES_VENV)/.installed-notebook: $(FIXTURES_VENV)/.installed-jax
	@$(FIXTURES_VENV)/bin/python -m pip install -q --disable-pip-version-check $(ROCM) -e '.[test,notebook]'
	@touch $@

clean: ## Remove .venv, caches and build products
	rm -rf $(VENV) $(FIXTURES_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
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
