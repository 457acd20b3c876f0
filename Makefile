# Every target does its own set-up: on a fresh machine `make demo` or `make test` is the first command.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0
N      ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow test-faults mutations lint docs bench clean help

help:
	@echo "make demo        tune a neural network on the digits data with kbo (about a minute after installation)"
	@echo "make test        run the tests"
	@echo "make test-slow   run the long acceptance tests, which make test leaves out"
	@echo "make test-faults inject faults: a part of make test; with N=100 a hundred times as many"
	@echo "make mutations   check that the tests find each of the hand-made faults"
	@echo "make lint        formatting, style, types and the import contract"
	@echo "make docs        run the tutorials and build the documentation into docs/_build/html"
	@echo "make bench       speed, as ratios against BoTorch in one process"

# torch comes first and pinned, so that a CPU build on the machine is taken instead of gigabytes of CUDA packages.
$(VENV)/torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"
	@touch $@

$(VENV)/cli: $(VENV)/torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[cli]"
	@touch $@

$(VENV)/test: $(VENV)/torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[test]"
	@touch $@ $(VENV)/cli

$(VENV)/docs: $(VENV)/torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[docs]"
	@touch $@

demo: $(VENV)/cli
	$(BIN)/kbo tune

test: $(VENV)/test
	$(BIN)/pytest -n 2

test-slow: $(VENV)/test
	$(BIN)/pytest -n 2 -m slow

test-faults: $(VENV)/test
	FAULTS=$(N) $(BIN)/pytest -n 2 tests/faults

mutations: $(VENV)/test
	$(BIN)/python -m tests.mutations

lint: $(VENV)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/cli
	$(BIN)/kbo bench

clean:
	rm -rf $(VENV) build dist docs/_build
