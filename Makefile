# A fresh machine needs two commands: make demo, make test.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SEEDS ?= 0:20000
SOURCES := layers functions infra app.py tests bench demo

.PHONY: demo test check bench cost serve simulate layers synth deploy format lock clean

demo: $(VENV)/ready
	@$(RUN) -m demo

test: check layers $(VENV)/infra-ready node_modules/.package-lock.json
	$(RUN) -m pytest tests

check: layers
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(RUN) -m bench.imports

bench: $(VENV)/ready
	$(RUN) -m bench

# Counts the requests of the functions' code on dynalite, which stops by itself. Takes three minutes.
cost: $(VENV)/ready node_modules/.package-lock.json
	@$(RUN) -m bench.cost

serve: $(VENV)/ready
	$(VENV)/bin/hourwheel serve --data hourwheel-data

# Any number of schedules of the protocol: make simulate SEEDS=0:1000000
simulate: $(VENV)/ready
	$(RUN) -m tests.simulation.run --seeds $(SEEDS)

# The layers of the functions, in build/layers. Takes half a minute at first, then a second as long as their lock stays.
layers: $(VENV)/ready
	@$(RUN) layers/build.py

# Context values: make deploy CDK='-c hourwheel:cell=orders' (docs/deploy.md lists them all)
synth: layers $(VENV)/infra-ready node_modules/.package-lock.json
	npx --no-install cdk synth --quiet $(CDK)

deploy: layers $(VENV)/infra-ready node_modules/.package-lock.json
	npx --no-install cdk deploy $(CDK)

format: $(VENV)/ready
	$(VENV)/bin/ruff format $(SOURCES)
	$(VENV)/bin/ruff check --fix $(SOURCES)

# Writes the locks anew; needs uv (pip install uv). They name no address.
lock:
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		pyproject.toml --extra aws --group dev --output-file requirements/dev.lock
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--group infra --constraint requirements/dev.lock --output-file requirements/infra.lock
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		requirements/layer.in --constraint requirements/dev.lock --output-file requirements/layer.lock

clean:
	rm -rf $(VENV) build dist cdk.out node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/ready: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hourwheel needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The CDK is 0.4 GB: only those who deploy or test get it.
$(VENV)/infra-ready: $(VENV)/ready requirements/infra.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/infra.lock
	@touch $@

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --ignore-scripts --no-audit --no-fund
	@touch $@
