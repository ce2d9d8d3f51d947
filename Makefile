# A fresh machine needs two commands: make demo, make test.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SEEDS ?= 0:20000
SOURCES := layers/hourwheel/python functions tests bench demo

.PHONY: demo test check bench serve simulate format lock clean

demo: $(VENV)/ready
	@$(RUN) -m demo

test: check
	$(RUN) -m pytest tests

check: $(VENV)/ready
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(RUN) -m bench.imports

bench: $(VENV)/ready
	$(RUN) -m bench

serve: $(VENV)/ready
	$(VENV)/bin/hourwheel serve --data hourwheel-data

# Any number of schedules of the protocol: make simulate SEEDS=0:1000000
simulate: $(VENV)/ready
	$(RUN) -m tests.simulation.run --seeds $(SEEDS)

format: $(VENV)/ready
	$(VENV)/bin/ruff format $(SOURCES)
	$(VENV)/bin/ruff check --fix $(SOURCES)

# Writes the lock anew; needs uv (pip install uv). It names no address.
lock:
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		pyproject.toml --extra aws --group dev --output-file requirements/dev.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/ready: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hourwheel needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
