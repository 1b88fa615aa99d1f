# Each target does its own set-up: only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INPUTS := pyproject.toml constraints.txt

.PHONY: help demo app reproduce reproduce-quick test lint format docs bench bench-long icu-demo test-postgres clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: $(VENV)/.report  ## draw a batch, fit every method, show and write the results to out/
	$(BIN)/bitl demo

app: $(VENV)/.app  ## set up .venv/bin/bitl for your own data
	@echo 'Ready: .venv/bin/bitl --help'

reproduce: $(VENV)/.study  ## every table and figure of the paper, at its sizes; hours, may be stopped and goes on
	$(BIN)/bitl reproduce all

reproduce-quick: $(VENV)/.study  ## a small version of every table and figure of the paper
	$(BIN)/bitl reproduce all --quick

test: $(VENV)/.test  ## run the tests and the examples in the docstrings
	$(BIN)/python -m pytest -q

lint: $(VENV)/.lint  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs  ## build the documentation in build/docs; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo 'Open build/docs/index.html'

bench: $(VENV)/.bench  ## measure speed against peers, side by side
	$(BIN)/python -m benchmarks

bench-long: $(VENV)/.bench  ## all benchmarks, those that take many minutes too
	$(BIN)/python -m benchmarks all

MIMIC_DEMO ?= ../shared/data/mimic-iv-demo
icu-demo: $(VENV)/.report,icu  ## the hypotension study on the MIMIC-IV demo in MIMIC_DEMO=folder (about half an hour)
	@test -d $(MIMIC_DEMO)/icu || { echo "There is no MIMIC-IV demo in $(MIMIC_DEMO); get it from PhysioNet and pass" \
		"MIMIC_DEMO=folder, or try made-up tables: bitl icu synthesise --out DIR"; exit 2; }
	$(BIN)/bitl icu build --mimic $(MIMIC_DEMO) --out out/icu-demo/transitions.parquet
	$(BIN)/bitl icu run --transitions out/icu-demo/transitions.parquet --out out/icu-demo

test-postgres: $(VENV)/.test,postgres  ## the same tables in a real PostgreSQL server give the same transitions
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
		{ $$(test $$(id -u) = 0 || echo sudo) apt-get install -y -qq postgresql >/dev/null; }
	BITL_TEST_POSTGRES=1 $(BIN)/python -m pytest -q tests/icu/test_postgres.py

clean:  ## remove everything that make creates
	rm -rf $(VENV) out build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bitl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: .venv/.test is newer than what it was installed from. Kernels are compiled as part of it.
$(VENV)/.%: $(INPUTS) | $(BIN)/python
	$(PIP) -e '.[$*]'
	$(BIN)/python -m bitl.warmup
	@touch $@
