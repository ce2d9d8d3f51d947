# A fresh machine needs two commands: make demo, make test.
PYTHON ?= python3
VENV := .venv
NEWEST := .venv-newest
GENERATOR := .venv-generator
UPSTREAM := build/sources
RUN := $(VENV)/bin/python
SEEDS ?= 0:20000
N ?= 100000
SEED ?= 0
SOURCES := layers functions infra pipeline app.py hatch_build.py tests bench demo docs/site
TESTED := $(addprefix $(VENV)/,infra-ready apps-ready changes-ready console-ready docs-ready) $(GENERATOR)/ready node_modules/.package-lock.json
# Of make verify: the seeds, and one in this many directed schedules. Of make fresh: the releases of Debian.
VOLUME_SEEDS ?= 80:1600
VOLUME_SHARE ?= 32
FRESH ?= trixie
# Not empty where Spark 4.0 can start: on Java 17 to 22.
JAVA := $(shell $(if $(JAVA_HOME),$(JAVA_HOME)/bin/)java -version 2>&1 | grep -E 'version "(1[7-9]|2[0-2])')
PIP := -m pip install --quiet --disable-pip-version-check
LOCK := uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: demo test verify fresh check checks docs bench bench-herd bench-peers profile cost load serve simulate fuzz mutants openapi layers pipeline-package synth deploy repair-format format lock sbom audit screenshot changelog dist commits tagged hooks clean

# Leaves out Spark where it cannot start: 0.35 GB instead of 1.1 GB. make demo KEEP=1 serves its data until Ctrl-C.
demo: $(VENV)/ready $(if $(JAVA),$(VENV)/pipeline-ready)
	@$(RUN) -m demo $(if $(KEEP),--keep)

# Everything that the tests need is installed before; make checks and make docs run beside the tests. make test
# ROOM=ordered runs the tests of a room, which is a folder of the library, make test PART=contract one of the parts,
# SLOWEST=50 lists the slowest tests.
test: $(if $(ROOM)$(PART),,layers pipeline-package) $(TESTED)
	@$(RUN) -m tests.parts $(if $(ROOM),--room $(ROOM)) $(if $(PART),--part $(PART)) $(if $(SLOWEST),--slowest $(SLOWEST))

# What repeats at length what the tests show briefly. The parts that take most memory come first. An advisory source that
# cannot be reached (3) is said and passes.
verify: pipeline-package $(TESTED) $(NEWEST)/ready $(UPSTREAM)/ready
	$(RUN) -m tests.parts --volume
	$(RUN) -m tests.simulation.run --seeds $(VOLUME_SEEDS) --processes 2
	$(RUN) -m tests.simulation.run --directed $(VOLUME_SHARE)
	$(RUN) -m infra.supply.audit || test $$? -eq 3

# The commands of README on fresh machines. No right to make a root (3) is said and passes.
fresh: $(VENV)/ready
	@for suite in $(FRESH); do $(RUN) -m tests.verify.debian $$suite 'make demo' 'make test' || test $$? -eq 3 || exit 1; done

# make check ROOM=ordered checks a room: format, lint, types, and which folders may import which.
check: $(if $(ROOM),,layers) checks

# The checks where the layers are built already.
checks: $(VENV)/pipeline-ready $(VENV)/apps-ready
ifdef ROOM
	@$(RUN) -m tests.rooms $(ROOM)
else
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m bench.imports
endif

# The pages and the API reference as a site in build/docs, which loads nothing from elsewhere. A link that leads nowhere
# fails it. Takes a quarter of a minute.
docs: $(VENV)/docs-ready
	@rm -rf build/docs # a page that was renamed would stay, with its links
	@$(RUN) -m sphinx -E -W --keep-going -q -c docs/site . build/docs
	@echo build/docs/README.html

bench: $(VENV)/pipeline-ready
	$(RUN) -m bench
	$(RUN) -m bench.pipeline
	$(RUN) -m bench.connector

# Delayed messages of other subjects beside a herd, a million messages due at one instant: make bench-herd HERD=100000
bench-herd: HERD = 1000000
bench-herd: $(VENV)/ready
	$(RUN) -m bench.herd --herd $(HERD)

# The same work on other queues, as far as they are installed: make bench-peers PEERS="redis postgres"
bench-peers: $(VENV)/peers-ready
	@$(RUN) -m bench.peers $(PEERS)

# CPU for each message in client and server, and the functions that take it. Some cases: make profile CASES="produce-1"
profile: $(VENV)/ready
	@$(RUN) -m bench.profiling $(CASES)

# Counts the requests of the functions' code on dynalite, which stops by itself. Takes three minutes.
cost: $(VENV)/ready node_modules/.package-lock.json
	@$(RUN) -m bench.cost

# Scenarios on a model of AWS: what saturates first, and what does not hold yet. Takes four minutes. Some scenarios:
# make load SCENARIOS="hot-20 claims-64", and the numbers of the model with their sources: make load SCENARIOS=--limits
load: $(VENV)/ready
	@$(RUN) -m tests.load.run $(SCENARIOS)

serve: $(VENV)/ready
	$(VENV)/bin/hourwheel serve --data hourwheel-data

# Any number of schedules of the protocol: make simulate SEEDS=0:1000000
simulate: $(VENV)/ready
	$(RUN) -m tests.simulation.run --seeds $(SEEDS)

# Any number of requests by the grammar of docs/api/, to a server of its own: make fuzz N=100000 SEED=7
fuzz: $(VENV)/ready
	@$(RUN) -m tests.fuzz.run --requests $(N) --seed $(SEED)

# Mutants of the protocol's modules, and the checks that find them: make mutants N=50 SEED=7 ROOM=ordered
mutants: N = 50
mutants: $(VENV)/ready
	@$(RUN) -m tests.mutants.run --count $(N) --seed $(SEED) --room $(or $(ROOM),all)

# The OpenAPI document, from the types that parse requests: a test fails while it differs from the code.
openapi: $(VENV)/ready
	@$(RUN) -m layers.openapi

# The layers of the functions, in build/layers. Takes half a minute at first, then a second as long as their lock stays.
layers: $(VENV)/ready
	@$(RUN) layers/build.py

# The packages that jobs import on EMR Serverless, in build/pipeline. Takes a minute at first, then a second as long as its lock stays.
pipeline-package: $(VENV)/ready
	@$(RUN) -m pipeline.build

# Context values: make deploy CDK='-c hourwheel:cell=orders' (docs/reference/settings.md lists them all)
synth: layers $(VENV)/infra-ready node_modules/.package-lock.json
	npx --no-install cdk synth --quiet $(CDK)

deploy: layers $(VENV)/infra-ready node_modules/.package-lock.json
	@chosen=$$($(RUN) -m infra.account $(CDK)) && npx --no-install cdk deploy $$chosen $(CDK)

# Replaces damaged records of the format of the tables. Takes the settings of make deploy.
repair-format: $(VENV)/infra-ready
	@$(RUN) -m infra.stored_format $(CDK)

format: $(VENV)/ready
	$(VENV)/bin/ruff format $(SOURCES)
	$(VENV)/bin/ruff check --fix $(SOURCES)

# Writes the locks anew; needs uv (pip install uv). The locks name no address of an index.
lock:
	$(LOCK) pyproject.toml --extra aws --group dev --output-file requirements/dev.lock
	$(LOCK) --group infra --constraint requirements/dev.lock --output-file requirements/infra.lock
	$(LOCK) pyproject.toml --extra pipeline --group spark --constraint requirements/dev.lock --output-file requirements/pipeline.lock
	$(LOCK) --group docs --constraint requirements/dev.lock --constraint requirements/infra.lock --constraint requirements/pipeline.lock --output-file requirements/docs.lock
	$(LOCK) pyproject.toml --group newest --constraint requirements/dev.lock --output-file requirements/spark-newest.lock
	$(LOCK) --group peers --constraint requirements/dev.lock --output-file requirements/peers.lock
	$(LOCK) pyproject.toml --extra celery --extra django --extra dramatiq --extra redis --extra sqlalchemy --group apps --constraint requirements/dev.lock --constraint requirements/infra.lock --constraint requirements/pipeline.lock --constraint requirements/docs.lock --output-file requirements/apps.lock
	$(LOCK) --group changes --constraint requirements/dev.lock --constraint requirements/infra.lock --constraint requirements/docs.lock --constraint requirements/apps.lock --output-file requirements/changes.lock
	$(LOCK) --group console --constraint requirements/dev.lock --output-file requirements/console.lock
	$(LOCK) --group generator --output-file requirements/generator.lock
	$(LOCK) requirements/layer.in --constraint requirements/dev.lock --output-file requirements/layer.lock
	$(subst --universal,--python-platform aarch64-manylinux_2_28 --only-binary :all:,$(LOCK)) requirements/emr.in --constraint requirements/pipeline.lock --constraint requirements/dev.lock --output-file requirements/emr.lock

# Moves the fragments of changelog.d into the changelog, below the version of the code. make changelog DRAFT=1 prints them.
changelog: $(VENV)/changes-ready
	@$(RUN) -m towncrier build --version "$$($(RUN) -m hatchling version)" $(if $(DRAFT),--draft,--yes)

# The source package and the wheel, in dist.
dist: $(VENV)/ready
	@rm -rf dist
	@$(RUN) -m hatchling build --target sdist --target wheel

# Whether the commits since a revision have subjects of at most 60 characters: make commits SINCE=main
commits: export SINCE ?= main
commits:
	@$(PYTHON) -m tests.commits --since "$$SINCE"

# Whether a tag is that of the version of the code, and the changelog has one full section of it: make tagged TAG=v0.1.0
tagged: export TAG ?=
tagged: $(VENV)/ready
	@$(RUN) -m infra.supply.tag "$$TAG"

# The hooks of .pre-commit-config.yaml, for each commit in this clone, with what they check types against.
hooks: $(VENV)/changes-ready $(VENV)/pipeline-ready $(VENV)/apps-ready
	@$(VENV)/bin/pre-commit install

# The picture of the console in README: docs/console.png. Takes a minute, in which its sparklines fill.
screenshot: $(VENV)/console-ready node_modules/.package-lock.json
	@$(RUN) -m tests.console.screenshot

# A bill of materials for each lock, in build/sbom.
sbom: $(VENV)/ready
	@$(RUN) -m infra.supply.sbom

# Asks OSV for advisories for what the locks pin. Exit status 3 where OSV is out of reach: then nothing is known.
audit: $(VENV)/ready
	@$(RUN) -m infra.supply.audit

clean:
	rm -rf $(VENV) $(NEWEST) $(GENERATOR) build dist cdk.out node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/ready: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hourwheel needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) $(PIP) --require-hashes --requirement requirements/dev.lock
	$(RUN) $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# The CDK is 0.4 GB: only those who deploy or test get it.
$(VENV)/infra-ready: $(VENV)/ready requirements/infra.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/infra.lock
	@touch $@

# 0.75 GB: only those who test, measure or show the pipeline get it.
$(VENV)/pipeline-ready: $(VENV)/ready requirements/pipeline.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/pipeline.lock
	@touch $@

# Clients of the other queues: only those who compare get them.
$(VENV)/peers-ready: $(VENV)/ready requirements/peers.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/peers.lock
	@touch $@

# The frameworks, databases and servers of the integrations.
$(VENV)/apps-ready: $(VENV)/ready requirements/apps.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/apps.lock
	@touch $@

# The hooks of commits, and what makes the changelog.
$(VENV)/changes-ready: $(VENV)/ready requirements/changes.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/changes.lock
	@touch $@

# The driver of the browser.
$(VENV)/console-ready: $(VENV)/ready requirements/console.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/console.lock
	@touch $@

# The tests of Kombu, Celery and Dramatiq, from their source packages, of which nothing is installed.
$(UPSTREAM)/ready: $(VENV)/apps-ready requirements/sources.lock
	$(RUN) -m tests.apps.upstream.sources
	@touch $@

# The reference imports what it describes, the pipeline and the integrations too.
$(VENV)/docs-ready: $(VENV)/pipeline-ready $(VENV)/apps-ready requirements/docs.lock
	$(RUN) $(PIP) --require-hashes --requirement requirements/docs.lock
	@touch $@

# An environment of its own for a generated client, whose users do not have the library.
$(GENERATOR)/ready: requirements/generator.lock
	$(PYTHON) -m venv $(GENERATOR)
	$(GENERATOR)/bin/python $(PIP) --require-hashes --requirement requirements/generator.lock
	@touch $@

# An environment of its own, because two versions of Spark cannot share one.
$(NEWEST)/ready: $(VENV)/ready requirements/spark-newest.lock
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python $(PIP) --require-hashes --requirement requirements/spark-newest.lock
	$(NEWEST)/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --ignore-scripts --no-audit --no-fund
	@touch $@
