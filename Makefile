# `make help` lists the targets. A fresh clone needs python3 (3.11 or newer) and nothing else;
# on Debian, missing system packages are installed where this user may install them.

PYTHON ?= python3
WORKERS ?= 2
# For `make mutants`: what to change, how often, which changes, how many at a time, seconds of tests per change.
ROOM ?= plan
COUNT ?= 150
SEED ?= 1
JOBS ?= $(WORKERS)
LIMIT ?= 20
# For `make hunt`, which takes SEED too.
SECONDS ?= 60
# For `make soak`, which takes SEED and PROCESSES too.
MINUTES ?= 30
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Stamps live in the environment they describe, so they go when it goes.
ENV := $(VENV)/.stamp-env
CORE := $(VENV)/.stamp-core
TEST := $(VENV)/.stamp-test
DOCS := $(VENV)/.stamp-docs
INPUTS := pyproject.toml constraints.txt

SAY := @printf '\n== %s\n'

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export NO_MKDOCS_2_WARNING := 1

.DELETE_ON_ERROR:
.PHONY: help run test test-long hunt soak mutants docs bench figures faults clean debian lint

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(CORE) ## install the package with its core dependencies and show it at work
	@$(BIN)/shardwise tour

test: lint ## all checks: ruff, pyright, import-linter, pytest
	$(SAY) "pytest"
	@$(BIN)/python -m pytest -n $(WORKERS)

test-long: lint ## the same, with the long tests and many more generated cases
	$(SAY) "pytest, long"
	@SHARDWISE_TEST_PROFILE=long $(BIN)/python -m pytest -n $(WORKERS) -m ""

mutants: $(TEST) ## small random changes of one room, and whether tests notice: make mutants ROOM=plan COUNT=150 SEED=1
	@$(BIN)/python tools/mutants.py $(ROOM) --count $(COUNT) --seed $(SEED) --jobs $(JOBS) --limit $(LIMIT) \
	    $(if $(MINIMUM),--minimum $(MINIMUM))

hunt: $(TEST) ## call random functions in every way, and print the smallest program of what differs: make hunt SEED=1 SECONDS=60
	$(SAY) "hunt, seed $(SEED), $(SECONDS) s"
	@$(BIN)/python -m tests.every.hunt $(SEED) $(SECONDS) $(PROCESSES)

soak: $(TEST) ## random programs with random faults between processes: make soak MINUTES=30 SEED=1 PROCESSES="4 8"
	$(SAY) "soak, seed $(SEED), $(MINUTES) min"
	@$(BIN)/python -m tests.soak $(MINUTES) $(SEED) $(if $(PROCESSES),--processes $(PROCESSES))

docs: $(DOCS) ## build the documentation into site/
	$(SAY) "mkdocs build"
	@$(BIN)/python -m mkdocs build --strict --quiet --site-dir site

bench: $(TEST) debian ## benchmarks beside DTensor, JAX and NumPy, in one report: make bench ARGS="--quick --html report.html"
	$(SAY) "shardwise bench"
	@$(BIN)/shardwise bench $(ARGS)

figures: $(TEST) ## write the figures of the committed run (benchmarks/results/full.json) into README and docs
	@$(BIN)/python tools/figures.py

faults: $(TEST) ## run the tests of faults, and write how many seconds each took into docs/faults.md
	@$(BIN)/python tools/fault_seconds.py

clean: ## remove .venv and everything the tools leave
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .mutants
	find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

lint: $(TEST) debian
	$(SAY) "ruff check"
	@$(BIN)/ruff check
	$(SAY) "ruff format --check"
	@$(BIN)/ruff format --check
	$(SAY) "pyright"
	@$(BIN)/pyright
	$(SAY) "lint-imports"
	@$(BIN)/lint-imports --no-logo

debian: $(ENV)
	$(SAY) "Debian packages for the tests and benchmarks"
	@$(PYTHON) tools/debian_packages.py test

$(ENV):
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: shardwise needs Python 3.11 or newer." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(0 if sys.version_info >= (3, 11) else \
	    "$(PYTHON) is Python " + v + "; shardwise needs 3.11 or newer. Try: make PYTHON=python3.11 ...")'
	@$(PYTHON) tools/debian_packages.py setup
	$(SAY) "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(CORE): $(ENV) $(INPUTS)
	$(SAY) "installing shardwise and its core dependencies"
	@$(INSTALL) --editable .
	@touch $@

$(TEST): $(ENV) $(INPUTS)
	$(SAY) "installing shardwise with every extra and the test tools (minutes, the first time)"
	@$(INSTALL) --editable '.[all,test]'
	@touch $(CORE) $@

$(DOCS): $(ENV) $(INPUTS)
	$(SAY) "installing shardwise and the documentation tools"
	@$(INSTALL) --editable '.[docs]'
	@touch $(CORE) $@
