# Each target does its own set-up: a virtual environment with the pinned versions of
# constraints.txt. `make evaluate` and `make test` are all a newcomer needs.

PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: evaluate test lint types docs bench profiles notebooks clean

evaluate: $(VENV)/.ready
	$(BIN)/slackswap evaluate $(ARGS)

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .

types: $(VENV)/.ready-test
	PYTHON=$(BIN)/python .ci/types.sh

docs: $(VENV)/.ready-docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

notebooks: $(VENV)/.ready-test
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=120 notebooks $(ARGS)

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks $(ARGS)

profiles: $(VENV)/.ready-torch
	$(BIN)/python benchmarks/make_profiles.py $(ARGS)

clean:
	rm -rf $(VENV) .typing .mypy_cache .ruff_cache .pytest_cache .hypothesis docs/_build build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Compiling is part of the set-up, so that no planner's time holds it.
$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) --editable .
	$(BIN)/python -m slackswap.cost_model.precompile
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(INSTALL) --editable '.[test]'
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(INSTALL) --editable '.[test,docs]'
	touch $@

$(VENV)/.ready-torch: $(VENV)/.ready
	$(INSTALL) --editable '.[test,torch]'
	touch $@
