PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8080
SAMPLE ?= 150
SEED ?= 0
CHANGED ?=
OPTIONS ?=

.PHONY: serve test test-fast test-docs test-nightly scoreboard scoreboard-diff versions mutants lint types train figures docs protocol golden golden-diff bench clean
.DEFAULT_GOAL := serve

serve: $(VENV)/.base  ## install if needed and answer on 127.0.0.1:8080
	$(BIN)/forerun serve --host $(HOST) --port $(PORT)

test: $(VENV)/.dev  ## lint, types and tests; what lint and types say comes after the tests
	@said=$$(mktemp); $(MAKE) --no-print-directory lint types > $$said 2>&1 & \
	$(BIN)/python -m pytest -n 2 --dist loadfile $(OPTIONS); tests=$$?; \
	wait $$!; checks=$$?; cat $$said; rm $$said; exit $$((tests + checks))

test-fast: $(VENV)/.dev  ## what takes under 2 minutes on 2 idle cores and needs nothing but the dev extra
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not reference and not zoo and not browser"

test-docs: $(VENV)/.dev  ## the tests of the documentation, with the blocks of every page and notebook
	$(BIN)/python -m pytest -n 2 --dist loadfile --all-pages tests/docs

test-nightly:  ## all tests and pages, with ten times as many generated examples
	$(MAKE) test OPTIONS="--all-pages --hypothesis-profile=nightly"

versions:  ## the base installation with the lowest declared versions, and on other Pythons at hand
	scripts/check_versions

mutants: $(VENV)/.dev  ## small changes to numerical code that the nearest tests should notice
	$(BIN)/python -m tests.mutation --sample $(SAMPLE) --seed $(SEED) $(if $(CHANGED),--changed $(CHANGED))

docs: $(VENV)/.dev  ## build the documentation into site/; a broken link fails
	$(BIN)/zensical build --clean --strict

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/vulture

types: $(VENV)/.dev
	$(BIN)/mypy

train: $(VENV)/.dev  ## rebuild the bundled predictors from pulled data
	$(BIN)/forerun train --output models/pretrained

figures: $(VENV)/.dev  ## renew the tables and example answers of README, docs and notebooks
	$(BIN)/python -m forerun.training.scoreboard page
	$(BIN)/python docs/examples.py
	$(BIN)/python docs/python_examples.py
	$(BIN)/python docs/notebooks.py quickstart leaderboard

protocol: $(VENV)/.dev  ## compile the messages of the Open Inference Protocol
	cd service/http/open_inference && $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. \
		--descriptor_set_out=open_inference.binpb open_inference.proto

scoreboard: $(VENV)/.dev  ## score whole answers on all tables, or on TABLES=name,name; continues where it stopped
	$(BIN)/python -m forerun.training.scoreboard $(if $(TABLES),--tables $(TABLES)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(ENGINE),--engine $(ENGINE))
	$(BIN)/python -m tests.public_cases --json training/public_cases.json
	$(BIN)/python -m tests.metamorphic --small --json training/laws.json
	$(BIN)/python -m forerun.training.scoreboard page

scoreboard-diff: $(VENV)/.dev  ## what moved beyond the noise since the stored scoreboard of BASE (HEAD), worst first
	$(BIN)/python -m forerun.training.scoreboard diff $(if $(BASE),--base $(BASE))

golden: $(VENV)/.dev  ## store today's answers of all predictors as those to keep
	$(BIN)/python -m tests.golden renew

golden-diff: $(VENV)/.dev  ## how today's answers differ from those stored
	$(BIN)/python -m tests.golden compare

bench: $(VENV)/.dev  ## timed benchmarks, apart from the tests
	$(BIN)/python -m tests.benchmarks

$(VENV)/.base: pyproject.toml constraints.txt scripts/install
	PYTHON=$(PYTHON) scripts/install base

$(VENV)/.dev: pyproject.toml constraints.txt scripts/install
	PYTHON=$(PYTHON) scripts/install dev

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
