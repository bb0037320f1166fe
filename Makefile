# Every task; `make` lists them. A fresh machine needs python3 and make only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest

.DEFAULT_GOAL := help
.PHONY: help demo test test-rest test-all test-gpu bench-gpu test-oldest test-deep test-golden test-kills test-cluster mutation coverage check format docs look dist test-dist figures bench-paper bench-limits bench bench-quick clean

help:  ## List the tasks
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# One stamp an extra: installing again happens only when the dependencies change.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group test
	@touch $@ $(VENV)/.installed

# torch is not an extra of the tests, because the default build brings gigabytes of CUDA; pip
# installs the small build for CPUs if its index has one. `make TORCH= test-all` leaves torch out.
TORCH ?= torch==2.13.0

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group dev $(TORCH)
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

demo: $(VENV)/.installed  ## Solve a seeded problem of each kind with every method
	$(BIN)/quadsense demo

# Each worker takes neighbouring tests, so that what a file prepares is prepared once.
# Bytecode is cached, as it is without that variable, so that commands which tests run begin quickly.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --durations 15
BEYOND_QUICK = slow or deep or gpu or cluster or browser

test: $(VENV)/.installed-test  ## Run the quick tests, of all but tensors and clusters (two minutes)
	$(PYTEST) -m "not ($(BEYOND_QUICK))"

test-rest: $(VENV)/.installed-dev  ## Run the tests that `make test` leaves out
	$(PYTEST) -m "$(BEYOND_QUICK)"

test-all: test test-rest  ## Run all tests

# What `make coverage` and `make mutation` are about, and by which tests: see tests/mutation.py.
COVERED = src/quadsense_check.py,src/quadsense/certificates.py,src/quadsense/proofs/*,src/quadsense/result/certificate.py,src/quadsense/core/sums.py
COVERING = tests/proofs tests/result tests/ranges tests/core/test_adjoint_sums.py tests/core/test_row_terms.py

# On a machine with a GPU, by whatever python3 has torch there: nothing is installed.
GPU_PYTHON ?= python3
GPU_TESTS = tests/many/test_many_results.py tests/measurements/test_conformance.py tests/device/test_torch.py tests/device/test_tf32.py tests/probes/test_fourier_torch.py tests/core/test_dense_algebra.py tests/device/test_device.py tests/device/test_device_questions.py tests/run/test_checkpoint.py

test-gpu:  ## Run the tests of tensors, and every kind of probes, on a GPU (skipped where there is none)
	QUADSENSE_DEVICE=cuda PYTHONPATH=src:$(PYTHONPATH) $(GPU_PYTHON) -m pytest -q -p no:cacheprovider -m gpu $(GPU_TESTS)

bench-gpu:  ## A GPU against its ceilings and the cores of its machine (minutes)
	PYTHONPATH=src:$(PYTHONPATH) $(GPU_PYTHON) benchmarks/gpu.py

test-deep: $(VENV)/.installed-dev  ## Solve 50,000 generated problems, check every claim
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/deep.py --count 40000 --seed 0 --jobs 2
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/deep.py --count 5000 --seed 1000000 --jobs 2
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/answers_check.py --count 4000
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/answers_check.py --count 1000 --seed 1000000
	QUADSENSE_TAMPERED=100000 $(PYTEST) -m deep tests/result/test_certificate_files.py

test-golden: $(VENV)/.installed-dev  ## Compare 2,500 answers with those written down in tests/golden.json.gz
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/golden.py compare

mutation: $(VENV)/.installed-dev  ## Change the code that proves things, see whether a test notices (long)
	$(BIN)/python tests/mutation.py --count 120 --seed 2026

coverage: $(VENV)/.installed-dev  ## Lines and branches that tests of proofs and certificates run (minutes)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m coverage run --branch --include "$(COVERED)" -m pytest -q -m "not ($(BEYOND_QUICK))" $(COVERING)
	$(BIN)/python -m coverage report --show-missing

test-kills: $(VENV)/.installed-dev  ## Kill 20 runs of every kind at random moments, take them up (minutes)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/survival.py --kills 20

test-cluster: $(VENV)/.installed-dev  ## Run every method on a Dask cluster (minutes)
	QUADSENSE_CLUSTER=1 $(PYTEST) -m cluster

$(OLDEST)/.installed: pyproject.toml tests/oldest.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --constraint tests/oldest.txt --editable . --group dev
	@touch $@

# A cache of compiled loops of its own: each version of Numba deletes the other's.
# More seeds, more combinations and killed processes are run with the versions of today alone.
test-oldest: BIN = $(OLDEST)/bin
test-oldest: export NUMBA_CACHE_DIR = $(OLDEST)/numba
test-oldest: $(OLDEST)/.installed  ## Run the tests with the oldest versions allowed of everything
	$(PYTEST) -m "not deep"

check: $(VENV)/.installed-dev  ## Lint, types, who imports whom, counts of the structure
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/structure.py --check

format: $(VENV)/.installed-dev  ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group docs
	@touch $@ $(VENV)/.installed

dist: $(VENV)/.installed-dev  ## Build the package: dist/*.whl and dist/*.tar.gz
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

test-dist: dist  ## Install the package where nothing else is, and try it
	$(BIN)/python tests/installed.py dist

docs: $(VENV)/.installed-docs  ## Build the documentation, run its examples: docs/_build/html
	rm -rf docs/_build/html  # pages that are no more
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/offline.py docs/_build/html

look: $(VENV)/.installed-dev  ## Open the pages of `make docs` in Chromium, and search them
	$(BIN)/python docs/look.py docs/_build/html docs/_build/pictures

figures: $(VENV)/.installed-dev  ## Remake the pictures of the README and of docs/scaling.md
	$(BIN)/python docs/figures.py

bench-paper: $(VENV)/.installed-dev  ## Printed algorithms against ours, as ratios
	$(BIN)/python benchmarks/paper.py

bench-limits: $(VENV)/.installed-dev  ## Seconds beyond time_limit and after Ctrl-C in every stage (ten minutes)
	$(BIN)/python benchmarks/limits.py

$(VENV)/.installed-bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group bench
	@touch $@ $(VENV)/.installed

bench: $(VENV)/.installed-bench  ## Peers against ours, as ratios (an hour)
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/small.py
	$(BIN)/python benchmarks/many.py
	$(BIN)/python benchmarks/default.py
	$(BIN)/python benchmarks/columns.py
	$(BIN)/python benchmarks/band.py
	$(BIN)/python benchmarks/plans.py
	$(BIN)/python benchmarks/determinism.py
	$(BIN)/python benchmarks/answers.py
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/estimators.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/probes.py --only differences kronecker

bench-quick: $(VENV)/.installed-bench  ## The same on small problems (minutes)
	$(BIN)/python benchmarks/peers.py --quick
	$(BIN)/python benchmarks/threads.py --quick
	$(BIN)/python benchmarks/answers.py --quick

clean:  ## Remove the environment and caches
	rm -rf $(VENV) $(OLDEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist \
	  docs/_build docs/gallery docs/api/generated
