# Marey: the few verbs people try first. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WEB_SOURCES := $(shell find web/src web/public web/index.html web/vite.config.ts web/report.ts -type f 2>/dev/null)
NATIVE_SOURCES := $(wildcard native/*) CMakeLists.txt
BUNDLE := src/marey/api/web/index.html
DEMO ?=
TEST ?=
BENCH ?=
# Where the programs of a real Kubernetes are built and kept.
KUBERNETES ?= $(HOME)/.cache/marey/kubernetes-1.20

.PHONY: help setup wheel demo test test-fast test-journeys test-python test-web soak soak-kill soak-kubernetes check bench api clean

help:  ## list the verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install everything into .venv and web/node_modules, build the web app
	@# Both halves wait for the network and the compiler by turns: side by side.
	@$(MAKE) --silent --no-print-directory -j2 $(VENV)/.ready $(BUNDLE)

# What runs, and beside it what the tests, checks and benches need: the demo does not wait for that.
$(VENV)/.running: requirements/runtime.lock requirements/native.lock pyproject.toml $(NATIVE_SOURCES) scripts/setup-python
	PYTHON=$(PYTHON) scripts/setup-python
	@touch $@

$(VENV)/.ready: $(VENV)/.running requirements/dev.lock
	$(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile -r requirements/dev.lock
	@touch $@

web/node_modules/.ready: web/package-lock.json web/package.json scripts/setup-node
	scripts/setup-node
	@touch $@

$(BUNDLE): web/node_modules/.ready $(WEB_SOURCES)
	cd web && npm run --silent build
	@touch $@

demo:  ## a live simulated cluster on loopback (DEMO="--gpus 512 --port 8600")
	@$(MAKE) --silent --no-print-directory -j2 $(VENV)/.running $(BUNDLE)
	@$(BIN)/marey demo $(DEMO)

test: setup test-python test-web  ## every test, against the real parts that are installed (TEST="-k store")

test-fast: setup  ## no browser, no real programs, nothing slow: the inner loop (TEST="-k store")
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not real and not browser and not slow" $(TEST)

test-journeys: setup  ## every journey in Chromium on the demo's 2,048 GPUs (JOURNEY_GPUS=512)
	MAREY_JOURNEY_GPUS=$(or $(JOURNEY_GPUS),2048) $(BIN)/python -m pytest tests/browser $(TEST)

test-python: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TEST)

test-web: web/node_modules/.ready
	cd web && npm run --silent test

soak: setup  ## ten minutes of random life on a real Slurm, held against squeue (SOAK_S=600)
	MAREY_SOAK_S=$(or $(SOAK_S),600) $(BIN)/python -m pytest -s tests/real/test_slurm.py -k random_life

soak-kill: setup  ## 44 rounds of kill -9 during writes and rewrites, plain and journaled (ROUNDS=44)
	@for through in plain journaled; do folder=$$(mktemp -d); \
	$(BIN)/python tests/store/kill_rounds.py $$folder/store.marey $(or $(ROUNDS),44) 44 $$through || exit 1; \
	rm -rf $$folder; done

soak-kubernetes: setup  ## Marey against a real Kubernetes 1.20, built once in ten minutes (KUBERNETES=FOLDER)
	scripts/build-kubernetes $(KUBERNETES)
	$(BIN)/python -m tests.real.kubernetes_soak $(KUBERNETES)

check: setup  ## format, lint, types, layers, generated files
	$(BIN)/ruff format --check src tests bench scripts
	$(BIN)/ruff check src tests bench scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd web && npm run --silent check
	scripts/check-generated

bench: setup  ## every speed claim, as a ratio measured in one run (BENCH=store)
	$(BIN)/python -m bench $(BENCH)

api: setup  ## write the OpenAPI document and the web app's types from it
	scripts/generate-api

wheel: setup  ## dist/*.whl with the web app and the native parser inside
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean:  ## remove what setup and the builds made
	rm -rf $(VENV) build dist web/node_modules src/marey/api/web
