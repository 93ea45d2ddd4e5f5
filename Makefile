# Two commands do everything on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.
# `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MUTANTS := .venv-mutants
STAMP := .make
MINUTES := 1
# Three processes on two cores, because half of the tests wait most of their time. Each has servers of its own; tests/support/groups.py says which tests stay together.
SIDE_BY_SIDE := -n 3 --dist loadfile
ROOT := $(shell test "$$(id -u)" = 0 || echo sudo -n) env DEBIAN_FRONTEND=noninteractive
APT := $(ROOT) apt-get

.DEFAULT_GOAL := help


.PHONY: help demo test test-long check model mutants bench chaos docs wheel constraints clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(STAMP)/run $(STAMP)/memory ## install, then watch jobs survive a killed worker, a frozen one and a poison job; then a memory's vectors
	@$(BIN)/unstuck demo
	@$(BIN)/python apps/memory/demo.py

test: $(STAMP)/dev $(STAMP)/servers ## run the tests
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not long and not further"

test-long: $(STAMP)/dev $(STAMP)/servers ## run the tests that take longer than their share, those on a second server of each kind, and most once more on Python 3.13
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "further and not long"
	$(BIN)/python -m pytest -q -m long
	$(BIN)/python tools/other_pythons.py $(SIDE_BY_SIDE)

check: $(STAMP)/dev model ## linters, types, import directions, file sizes, links in docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > $(STAMP)/imports.log || { cat $(STAMP)/imports.log; exit 1; }
	$(BIN)/python tools/layout.py

model: $(STAMP)/spin ## check the protocol and its mutants with Spin
	$(PYTHON) protocol/check.py

mutants: $(STAMP)/mutants ## change the rules one place at a time and list the changes that no test notices
	rm -rf mutants # it copies anew what it changes, and nothing else
	UNSTUCK_EXAMPLES=10 PYTEST_TIMEOUT=20 $(MUTANTS)/bin/mutmut run
	$(MUTANTS)/bin/mutmut results

bench: $(STAMP)/dev ## measure against peers, in one run a store on this machine
	$(BIN)/python bench/run.py

chaos: $(STAMP)/dev $(STAMP)/servers ## break things around each store for MINUTES=1, then check the history
	for store in sqlite postgres redis neo4j; do $(BIN)/python chaos/run.py --store $$store --minutes $(MINUTES) || exit 1; done

docs: $(STAMP)/dev ## build the site of the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open site/index.html"

wheel: $(STAMP)/dev ## build the package
	$(BIN)/python -m build --no-isolation --outdir dist .

constraints: $(STAMP)/dev ## write down the versions that were tested
	$(BIN)/pip freeze --exclude-editable --exclude unstuck --exclude unstuck-memory > constraints.txt

clean: ## remove what the other commands made
	rm -rf $(VENV) $(MUTANTS) $(STAMP) dist site mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP)/run: pyproject.toml constraints.txt
	@mkdir -p $(STAMP)
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: set PYTHON=…")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(STAMP)/memory: $(STAMP)/run apps/memory/pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --editable apps/memory
	@touch $@

$(STAMP)/dev: $(STAMP)/run apps/memory/pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[testing]' \
		--editable 'apps/memory[neo4j,openai]' $$($(BIN)/python tools/dev_group.py)
	@touch $@

# An environment of its own: mutmut does not know the pytest that was tested.
$(STAMP)/mutants: pyproject.toml constraints.txt
	@mkdir -p $(STAMP)
	grep -v '^pytest==' constraints.txt > $(STAMP)/mutants.txt
	test -x $(MUTANTS)/bin/python || $(PYTHON) -m venv $(MUTANTS)
	$(MUTANTS)/bin/python -m pip install --quiet --constraint $(STAMP)/mutants.txt --editable '.[testing]' \
		$$($(MUTANTS)/bin/python tools/dev_group.py) 'mutmut==3.8.0' 'pytest<9.2'
	@touch $@

# Spin is a Debian package: fetched where that is possible without asking, else the check says what to install.
$(STAMP)/spin:
	@mkdir -p $(STAMP)
	@command -v spin > /dev/null || ! command -v apt-get > /dev/null || \
		{ $(APT) -qq update && $(APT) -qq install -y spin gcc; } > $(STAMP)/apt.log 2>&1 || true
	@touch $@

# The servers that tests start for themselves, fetched likewise; without them the tests say what to install.
# They are not to run by themselves: PostgreSQL's package makes and starts a cluster unless a setting forbids it,
# which is here for the time of the install only, and PgBouncer's and Redis's enable a service.
NO_CLUSTER := /etc/postgresql-common/createcluster.d/unstuck.conf
$(STAMP)/servers:
	@mkdir -p $(STAMP)
	@! command -v apt-get > /dev/null || { \
		ls /usr/lib/postgresql/*/bin/postgres || { \
			$(ROOT) mkdir -p $(dir $(NO_CLUSTER)) && \
			echo 'create_main_cluster = false' | $(ROOT) tee $(NO_CLUSTER) && \
			$(APT) -qq update && $(APT) -qq install -y postgresql; \
			$(ROOT) rm -f $(NO_CLUSTER); }; \
		PATH=$$PATH:/usr/sbin command -v pgbouncer || { \
			$(APT) -qq update && $(APT) -qq install -y pgbouncer && \
			test -d /run/systemd/system && $(ROOT) systemctl disable --now pgbouncer; }; \
		command -v redis-server || { \
			$(APT) -qq update && $(APT) -qq install -y redis-server && \
			test -d /run/systemd/system && $(ROOT) systemctl disable --now redis-server; }; \
		command -v mvn && command -v java || { \
			$(APT) -qq update && $(APT) -qq install -y --no-install-recommends maven openjdk-17-jre-headless; }; \
		} > $(STAMP)/servers.log 2>&1 || true
	@{ command -v mvn && command -v java; } > /dev/null || $(BIN)/pip install --quiet arcadedb-embedded || true
	@! command -v mvn > /dev/null || PYTHONPATH=tests $(BIN)/python -m support.neo4j >> $(STAMP)/servers.log 2>&1 || true
	@touch $@
