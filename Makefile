# Everything runs in .venv; `make demo` and `make test` work on an empty clone.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
MODEL  := smollm2-135m-instruct

# Idle OpenMP threads must sleep, not spin; it counts only when set before torch is imported.
export OMP_WAIT_POLICY := passive
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup model editor demo serve test unit bench checking served conformance soak streams killed fuzz lint fmt schema clean

help: ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-11s %s\n", $$1, $$2 }'

setup: $(STAMP) ## the virtual environment with everything in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sglspec needs Python 3.11 or newer; say which one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setup: virtual environment in $(VENV)"
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV)
	@echo "setup: packages (torch is among them: several minutes the first time)"
	@$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable '.[local,server,dev]'
	@touch $@
	@echo "setup: done"

model: $(STAMP) ## the default model, about 93 MB to fetch, then cached
	@$(BIN)/sglspec models pull $(MODEL)

editor: ## the YAML language server that editors use, for the tests of the schema (needs npm; skipped without)
	@if command -v npm > /dev/null; then npm --prefix tests/editor ci --silent --no-audit --no-fund; \
	else echo "no npm: the editor tests will be skipped" >&2; fi

demo: setup model ## set up, fetch the model, judge an essay
	@echo "demo: sglspec run examples/04-essay-judge.sglspec.yaml" >&2
	@$(BIN)/sglspec run examples/04-essay-judge.sglspec.yaml --input examples/inputs/essay-judge.yaml

serve: setup model ## set up, fetch the model, serve the programs of specs/ on http://127.0.0.1:8080; more with ARGS="--port 0"
	@$(BIN)/sglspec serve $(ARGS)

# The model was fetched: tests that need it must run, not skip.
test: export SGLSPEC_TEST_MODEL := require
test: setup model editor lint unit ## lint, types, import directions, all tests

unit: $(STAMP) ## the tests alone; pick some with ARGS="-k fork"
	@$(BIN)/python -m pytest $(ARGS)

bench: setup model ## time the engine beside other systems, in ratios; some with ARGS="--quick --workloads fork8"
	@$(BIN)/python -m benchmarks.run $(ARGS)

checking: $(STAMP) ## time `sglspec check` of a thousand lines beyond its start
	@$(BIN)/python -m benchmarks.check $(ARGS)

served: setup model ## time 32 program runs over HTTP beside the same in one process
	@$(BIN)/python -m benchmarks.served $(ARGS)

conformance: setup model ## constraints against corpora of JSON Schemas (SGLSPEC_CORPORA), hostile ones, clients of SGLang and OpenAI
	@$(BIN)/python -m benchmarks.constraints --model $(MODEL) $(ARGS)
	@$(BIN)/python -m tests.soak.hostile --model $(MODEL)
	@SGLSPEC_COMPAT_MODEL=$(MODEL) $(BIN)/python -m pytest -q $(addprefix tests/server/compat/test_,sglang_client.py openai_client.py generate.py snippets.py)

soak: $(STAMP) ## random programs with random cancels, watched for what they leave; longer with ARGS="--seconds 600"
	@$(BIN)/python -m tests.soak.run $(ARGS)

killed: $(STAMP) ## a batch of 10,000 rows, killed ten times; other numbers with ARGS="--rows 100000 --kills 20"
	@$(BIN)/python -m tests.soak.batch $(ARGS)

fuzz: $(STAMP) ## 100,000 mutated documents through all that reads documents; fewer with ARGS="--documents 1000"
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

streams: $(STAMP) ## 200 streams of one server for two minutes, and overload; others with ARGS="--streams 400"
	@$(BIN)/python -m tests.soak.server $(ARGS)

lint: $(STAMP) ## ruff, pyright, types of the public API, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python
	$(BIN)/python -m tests.public_types
	$(BIN)/lint-imports --no-logo

fmt: $(STAMP) ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schema: $(STAMP) ## write schemas/sglspec-v1.schema.json again
	$(BIN)/sglspec schema > schemas/sglspec-v1.schema.json.new
	mv schemas/sglspec-v1.schema.json.new schemas/sglspec-v1.schema.json

clean: ## remove what make, tests and builds left; the cached model stays
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find sglspec engine tests -name __pycache__ -type d -prune -exec rm -rf {} +
