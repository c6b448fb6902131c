# Two commands set everything up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
EXPORT_VENV := .venv-export
BIN := $(VENV)/bin
# One of the two runtimes, never both: they overwrite each other's files.
RUNTIME := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
PIP_FLAGS := --quiet --disable-pip-version-check

.PHONY: demo test test-export check proto bench clean

demo: $(VENV)/installed-$(RUNTIME)  ## Serve the bundled clip through two unlike pools; SPLIT=1 asks for a two-stage pipeline
	SPLIT=$(SPLIT) $(BIN)/python -m framepool.benchmarks.demo

test: $(VENV)/installed-dev  ## All tests; those that need torch or a GPU are skipped and say so
	$(BIN)/python -m pytest -rs

test-export: $(EXPORT_VENV)/installed  ## Exports torchvision models, cuts them and compares (torch: 5.5 GB)
	$(EXPORT_VENV)/bin/python -m pytest -m export -rs

check: $(VENV)/installed-dev  ## Style, types, arrows between the parts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_arrows.py tests/test_packaging.py

proto: $(VENV)/installed-dev  ## Regenerate the API's code from proto/*.proto
	$(BIN)/python -m framepool.proto.generate

bench: $(VENV)/installed-$(RUNTIME)  ## The figures of the README's table
	$(BIN)/python -m framepool.benchmarks.scheduler_speed
	$(BIN)/python -m framepool.benchmarks.half_load

clean:
	rm -rf $(VENV) $(EXPORT_VENV) demo-output build *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "framepool needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-$(RUNTIME): pyproject.toml | $(BIN)/python
	$(BIN)/pip install $(PIP_FLAGS) -e '.[$(RUNTIME)]'
	touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install $(PIP_FLAGS) -e '.[$(RUNTIME),dev]'
	touch $@

$(EXPORT_VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(EXPORT_VENV)
	$(EXPORT_VENV)/bin/pip install $(PIP_FLAGS) -e '.[cpu,export,dev]'
	touch $@
