# Two commands: `make audit` and `make test`. Everything else is in `make help`.
# The first of the supported versions that runs: a shim of pyenv may be there without its version.
PYTHON ?= $(shell for v in 3.11 3.12 3.13; do python$$v -c "import sys; sys.exit(sys.version_info < (3, 11, 5))" 2>/dev/null \
	&& echo python$$v && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SHELL := /bin/bash

.PHONY: audit audit-all test coverage test-all check fingerprints bench bench-statistics bench-mitigation bench-calibration bench-devices bench-encoders \
        bench-generation bench-incremental bench-language bench-notebook bench-growth bench-utility trust format graph hashes docs notebooks screenshots ui report clean help

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# Bytecode is kept even where the environment says otherwise: compiling all tests anew takes each worker six seconds.
TESTS = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

$(READY): pyproject.toml constraints.txt hashes.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 (3.11.5 or later), 3.12 or 3.13 is needed, or PYTHON=..."; exit 1; }
	@# An environment that was not finished may hold what was never checked: it is made anew.
	@test -f $@ || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $@
	@echo "Installing the pinned versions into $(VENV): some minutes and about 3 GB, once."
	@# What was installed is told outside of the environment, into which a package can write whatever it likes.
	@report=$$(mktemp) && trap 'rm -f "$$report"' EXIT && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --report "$$report" -c constraints.txt -e '.[dev]' && \
	$(PYTHON) -I documentation/hashes.py check "$$report" || { rm -rf $(VENV); exit 1; }
	@$(BIN)/python -c 'import torchvision' 2>/dev/null || $(BIN)/python -m plumbline.checkpoints.operators
	@touch $@

audit: $(READY)  ## set up what is missing, audit the planted world, write the report
	@$(BIN)/plumbline audit

audit-all: $(READY)  ## the whole planted world: every encoder on every dataset
	@$(BIN)/plumbline audit --config audit-all.yaml

test: $(READY)   ## set up what is missing, run the tests
	$(TESTS)

coverage: $(READY)  ## the tests again, refusing less than 90% branch coverage of plumbline
	$(TESTS) --cov --cov-report=

test-all: $(READY)  ## the tests, on new examples, and the slow suite
	$(TESTS) --hypothesis-profile=new
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m slow --durations=20 --hypothesis-profile=new

check: $(READY)  ## ruff, import-linter, circles of imports, dead names, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m documentation.import_circles
	$(BIN)/python -m documentation.dead_names
	$(BIN)/mypy

format: $(READY)  ## ruff's format, and what it can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fingerprints: $(READY)  ## what dear results give for a small input, kept anew after a version was raised
	RENEW_FINGERPRINTS=1 $(BIN)/python -m pytest tests/fingerprints

graph: $(READY)   ## the snapshot of the asset graph and its picture, anew after an asset was added or changed
	RENEW_GRAPH=1 $(BIN)/python -m pytest tests/orchestration/test_graph.py
	$(BIN)/python -m documentation.graph

bench: $(READY)  ## speed against the peers it must beat, as ratios
	@for b in statistics mitigation ingestion encoders; do $(BIN)/python -m benchmarks.$$b || exit 1; done
	@$(MAKE) --no-print-directory bench-generation bench-language

bench-statistics: $(READY)  ## intervals, tests and word counts against scipy, pandas and loops, with their bars
	@$(BIN)/python -m benchmarks.statistics

bench-mitigation: $(READY)  ## the batched logit adjustment against the released loop, with its bar
	@$(BIN)/python -m benchmarks.mitigation

bench-calibration: $(READY)  ## do intervals and tests keep their word: worst cell of each block beside its bar
	@$(BIN)/python -m benchmarks.calibration

bench-incremental: $(READY)  ## what an audit costs after a change, against a cold one (some minutes)
	$(BIN)/python -m benchmarks.incremental

bench-devices: $(READY)  ## an audit by one process and by several, and eight simulated devices (half an hour)
	@$(BIN)/python -m benchmarks.devices

bench-encoders: $(READY)  ## images/s of the engine against plain loops, on the CPU or a GPU
	@$(BIN)/python -m benchmarks.encoders

bench-generation: $(READY)  ## answers of a LLaVA with what is shared, against `generate`, with their bars
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.generation

bench-language: $(READY)  ## words and MaxToxicity over 5 million answers, against scikit-learn and pandas
	@$(BIN)/python -m benchmarks.language

bench-utility: $(READY)  ## plan and audit of 50,000 images in 1,000 classes, laid out as ImageNet's
	@$(BIN)/python -m benchmarks.utility

bench-notebook: $(READY)  ## what a notebook waits for: imports, and an audit of 1,000 vectors, with their bars
	@$(BIN)/python -m benchmarks.notebook

bench-growth: $(READY)  ## time and memory of 1,000 to 1,000,000 records, with the exponents' bar
	@$(BIN)/python -m benchmarks.growth

trust: $(READY)   ## faults of every kind around a small audit, HOURS=1 (needs gcc); writes docs/trust.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/trust/matrix.py --hours $(or $(HOURS),1) --page docs/trust.md

hashes: $(READY) ## hashes.txt anew, of constraints.txt and pyproject.toml (needs uv and a network)
	@$(BIN)/python -I documentation/hashes.py make

screenshots: $(READY)  ## the pictures of README.md again, of the newest audit (needs Chromium)
	@$(BIN)/python -m documentation.screenshots

docs: $(READY)   ## the documentation as pages in .site, with the metric and asset references made from the code
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "Documentation: $(CURDIR)/.site/index.html  (for its search: $(BIN)/python -m http.server -d .site -b 127.0.0.1)"

notebooks: $(READY)  ## run the notebooks of examples/ from beginning to end
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/notebook/test_notebooks.py

ui: $(READY)     ## Dagster and MLflow on loopback, over the store of `make audit`
	@$(BIN)/plumbline ui

report: $(READY) ## write the report again and print its path
	@$(BIN)/plumbline report

clean:           ## remove the environment and every result
	rm -rf $(VENV) .plumbline .site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
