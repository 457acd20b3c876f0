# Every target does its own set-up: on a fresh machine `make demo` or `make test` is the first command.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0
N      ?= 1
export OMP_NUM_THREADS ?= 1

PYTHONS ?= 3.11 3.12 3.13
TESTS   ?= tests
CORE    := tests/test_imports.py tests/test_linalg.py tests/test_kernels.py tests/test_space.py tests/test_acquisition.py \
           tests/test_models.py tests/test_certificates.py tests/test_optimize.py tests/test_journal.py
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Interpreters of pyenv come first on the path, since its shims answer for one version only.
UV      := PATH="$$(printf %s: "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin)$$PATH" UV_PYTHON_DOWNLOADS=never $(BIN)/uv

# $(call tests-in,NAME,PYTHON,REQUIREMENTS): install the requirements in an environment of that name and run the tests
tests-in = $(UV) venv --quiet --allow-existing --python $2 $(VENV)/$1 \
	&& $(UV) pip install --quiet --python $(VENV)/$1 $3 \
	&& $(VENV)/$1/bin/python -m pytest -n 2 $(TESTS)

.PHONY: demo test test-all test-thorough test-faults test-botorch test-slow test-device test-all-pythons test-lowest package mutations lint docs docs-pages bench bench-device reproduce clean help

help:
	@echo "make demo        tune a neural network on the digits data on all CPUs (at most a minute after installation)"
	@echo "make test        run the tests"
	@echo "make test-all    run all other parts: $(PARTS);"
	@echo "                 without some of them by LEFT_OUT='test-lowest mutations'"
	@echo "make test-thorough  run further cases of what make test shows once"
	@echo "make test-faults run with injected faults; with N=100 a hundred times as many"
	@echo "make test-botorch  run every search, transform and input of BoTorch"
	@echo "make test-slow   run the long acceptance tests"
	@echo "make test-device  run the tests that take a device on a stand-in for a GPU, and on a GPU if there is one"
	@echo "make test-all-pythons  run the tests on Python $(PYTHONS), as far as they are installed"
	@echo "make test-lowest run the tests with the lowest versions of the dependencies"
	@echo "make package     build wheel and source distribution and test them in an empty environment"
	@echo "make mutations   check that the tests find each of the hand-made faults"
	@echo "make lint        formatting, style, types and the import contract"
	@echo "make docs        run the tutorials and build the documentation into docs/_build/html"
	@echo "make docs-pages  the same without running the tutorials"
	@echo "make bench       speed, as ratios against BoTorch in one process"
	@echo "make reproduce   list the experiments of the papers; PAPER=mixture OPTIONS='--table 1' repeats one"
	@echo "make bench-device  speed on a GPU, measured against what its arithmetic and memory allow"

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
	@touch $@ $(VENV)/cli $(VENV)/experiments

$(VENV)/experiments: $(VENV)/torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[experiments]"
	@touch $@ $(VENV)/cli

$(VENV)/docs: $(VENV)/torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[docs]"
	@touch $@

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv

demo: $(VENV)/cli
	$(BIN)/kbo tune --workers 0
	$(BIN)/kbo report kbo-runs/tune-digits.jsonl

test: $(VENV)/test
	$(BIN)/pytest -n 2

# Every part can be run alone; make test-all LEFT_OUT="mutations test-slow" is all but these.
PARTS := test-thorough test-faults test-botorch test-device test-slow docs-pages mutations test-all-pythons test-lowest
test-all: $(filter-out $(LEFT_OUT),$(PARTS))

test-thorough: $(VENV)/test
	$(BIN)/pytest -n 2 -m thorough

test-faults: $(VENV)/test
	FAULTS=$(N) $(BIN)/pytest -n 2 -m faults

test-botorch: $(VENV)/test
	$(BIN)/pytest -n 2 -m botorch

test-slow: $(VENV)/test
	$(BIN)/pytest -n 2 -m slow

# The stand-in is compiled before two processes want it at once; without g++ its tests are left out.
test-device: export PATH := $(abspath $(BIN)):$(PATH)
test-device: $(VENV)/test
	@if command -v g++ > /dev/null; then python -c "import tests.device.standin" && KBO_TEST_DEVICE=standin pytest -n 2 -m device; \
	else echo "g++ was not found: the tests on the stand-in for a GPU are left out"; fi
	@if python -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then KBO_TEST_DEVICE=cuda pytest -m device; fi

test-all-pythons: $(addprefix test-python-,$(PYTHONS))

test-python-%: $(BIN)/uv
	@if $(UV) python find $* > /dev/null 2>&1; then $(call tests-in,$*,$*,"$(TORCH)" -e ".[test]"); \
	else echo "Python $* was not found: its tests are left out"; fi

test-lowest: $(BIN)/uv
	$(call tests-in,lowest,3.11,--resolution lowest-direct -e ".[test]")

# The tests of the source distribution, beside no source code, with the wheel.
package: $(BIN)/uv
	rm -rf dist build && mkdir build
	$(UV) build --quiet
	tar xzf dist/*.tar.gz -C build --strip-components 1 --exclude 'kbo-*/kbo'
	tar tzf dist/*.tar.gz
	$(BIN)/python -m zipfile --list dist/*.whl
	$(UV) venv --quiet --clear --python 3.11 $(VENV)/package
	$(UV) pip install --quiet --python $(VENV)/package "$(TORCH)" "$$(echo dist/*.whl)[test]"
	cd build && $(abspath $(VENV))/package/bin/python -m pytest -n 2 $(CORE)

mutations: $(VENV)/test
	$(BIN)/python -m tests.mutations

lint: $(VENV)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m tests.typed_names
	$(BIN)/lint-imports

docs: $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# The pages without running the tutorials, which the tests do.
docs-pages: $(VENV)/docs
	KBO_DOCS_NOTEBOOKS=off $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/pages

bench: $(VENV)/experiments
	$(BIN)/python -m experiments.bench

bench-device: $(VENV)/experiments
	$(BIN)/python -m experiments.bench.device

reproduce: $(VENV)/experiments
	$(BIN)/python -m experiments.papers$(if $(PAPER),.$(PAPER) $(OPTIONS))

clean:
	rm -rf $(VENV) build dist docs/_build
