# Every target installs what it needs into .venv; only python3 (3.11+), pip, make and git must exist.
# `make help` lists the targets with the text behind their ##.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MUTANTS_VENV := .venv-mutants
MUTANTS_READY := $(MUTANTS_VENV)/.ready
# If it is set, every process compiles its imports again, and the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
# Most tests wait for servers and processes, so more tests than cores run at a time. All tests of a file run in the same
# process, which shares the servers that they need.
AT_ONCE := -n 3 --dist loadfile
# Without debug ranges: Python 3.11 parses code to underline it in tracebacks, and two threads cannot do that at the same
# time while a garbage collection callback runs Python code, as hypothesis installs one. pytest aborted because of that.
# Groups run at the same time, so each has its own cache directory.
PYTEST = PYTHONNODEBUGRANGES=1 $(BIN)/python -m pytest -o cache_dir=.pytest_cache/$@
EXAMPLES := $(addprefix examples/,demo.py hello.py async_tasks.py approval/approval.py nightly_report/nightly_report.py \
	model_training/model_training.py image_pipeline/image_pipeline.yaml agent/agent.yaml)
PIP_FLAGS := --quiet --disable-pip-version-check
# Two groups of tests run at a time, in this order: the longest first, so that no group runs alone at the end.
GROUPS := gateway book clients platform properties power flows dashboard
CHECKS := check-format check-lint check-types check-imports check-dependencies check-language check-generated

.PHONY: help setup demo test check $(CHECKS) audit unit $(GROUPS) screenshots cluster chaos faults rebuild fuzz format bench \
	bench-growth bench-peers bench-page bench-parts docs site generated mutants dist release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- Set up, and try ---

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python 3.11 or newer is needed: set PYTHON="; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

setup: $(READY) ## make .venv with the package, installed from this folder

demo: $(READY) ## run an example flow and watch it
	@$(BIN)/pyoco-server dev $(EXAMPLES) --submit monthly-report || [ $$? -eq 130 ]

clean: ## remove .venv, caches and everything that was built
	rm -rf $(VENV) $(MUTANTS_VENV) mutants dist build .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# --- Check and test: what CI runs ---

test: $(READY) ## static checks and the quick tests, then all other tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target unit $(CHECKS) audit
	@$(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync=line $(GROUPS)

check: ## static checks only: all of them, also when one fails
	@$(MAKE) --no-print-directory --keep-going $(CHECKS)

check-format: $(READY)
	$(BIN)/ruff format --check .

check-lint: $(READY)
	$(BIN)/ruff check .

check-types: $(READY)
	$(BIN)/mypy

check-imports: $(READY)
	$(BIN)/lint-imports

check-dependencies: $(READY)
	$(BIN)/deptry src

check-language: $(READY) # the plain vocabulary: see tools/plain_language.py
	$(BIN)/python -m tools.plain_language

check-generated: $(READY) # the documents that are written from code, and all links
	$(BIN)/python -m tools.state_diagrams --check
	$(BIN)/python -m tools.spec_coverage --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.links

audit: $(READY) ## known weaknesses in our code and in our dependencies
	$(BIN)/python -m tools.audit $(if $(AUDIT_STRICT),--strict)

format: $(READY) ## format the code, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

unit: $(READY) ## the quick tests of the core, with 100 % branch coverage
	$(BIN)/coverage run -m pytest tests/core
	$(BIN)/coverage report --include='src/pyoco_server/core/*' --fail-under=100

# --- The groups of `make test` ---

gateway: $(READY) ## HTTP, keys and tenants; everything killed under load
	$(PYTEST) -n 4 --dist worksteal tests/gateway tests/kill

clients: $(READY) ## the client library, the command lines, wheels
	$(PYTEST) -n 4 --dist worksteal tests/client tests/cli tests/app/wheels tests/wheels

platform: $(READY) ## NATS, the index, settings, logs, use cases and workers, with real servers and processes
	$(PYTEST) $(AT_ONCE) --ignore tests/adapters/executor tests/settings tests/logs tests/messages tests/adapters tests/worker tests/rebuild tests/app/recovery tests/app/runs tests/app/snapshots tests/interop

flows: $(READY) ## the engine, flow.yaml and isolation, with real threads and processes
	$(PYTEST) $(AT_ONCE) tests/flows tests/adapters/executor tests/app/runtime tests/values tests/testing examples

dashboard: $(READY) ## the dashboard in a real browser
	$(BIN)/python -m tools.dashboard_setup
	$(PYTEST) -n 3 --dist loadfile tests/dashboard

properties: $(READY) ## exploration, the simulator, golden logs, fuzzing, upgrades, faults; the longest files first
	$(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder --randomly-dont-reorganize tests/chaos tests/sim tests/fuzz tests/properties tests/cluster tests/upgrade tests/golden tests/docs/site tests/bench

power: $(READY) ## a disk that loses power below a running platform (POWER='--count 200' for the full scale)
	$(BIN)/python -m tools.power_setup
	$(if $(POWER),$(BIN)/python -m tests.power.crash $(POWER),$(PYTEST) -n 2 --dist load tests/power)

book: $(READY) ## README, tutorial and guides followed word by word; the release built, installed and used
	$(PYTEST) $(AT_ONCE) --ignore tests/docs/site tests/migration tests/docs tests/release tests/tools

# --- Longer tests, not part of `make test` ---

cluster: $(READY) ## three NATS nodes, and everything under faults, also with three servers
	PYOCO_CHAOS_THREE=1 $(BIN)/python -m pytest tests/cluster tests/chaos

chaos: $(READY) ## everything under faults for some minutes (CHAOS='--minutes 20 --topology three')
	$(BIN)/python -m chaos $(CHAOS)

faults: $(READY) ## every error of NATS at every write of every route (long)
	PYOCO_ALL_FAULTS=1 $(BIN)/python -m pytest -p no:randomly --timeout 3600 tests/gateway/test_nats_faults.py

fuzz: $(READY) ## random input at every edge (PYOCO_FUZZ=50: how many times as much as in the tests)
	PYOCO_FUZZ=$${PYOCO_FUZZ:-50} $(BIN)/python -m pytest -n 2 --timeout 3600 tests/fuzz tests/worker/test_own_graph_random.py

rebuild: $(READY) ## delete all that is derived from the log of 100,000 runs, and start (REBUILD='--runs 20000')
	$(BIN)/python -m tests.rebuild $(REBUILD)

mutants: $(MUTANTS_READY) ## mutation testing of the core
	PATH="$(CURDIR)/$(MUTANTS_VENV)/bin:$$PATH" $(MUTANTS_VENV)/bin/python -m tools.mutants

$(MUTANTS_READY): pyproject.toml
	@test -d $(MUTANTS_VENV) || $(PYTHON) -m venv $(MUTANTS_VENV)
	@$(MUTANTS_VENV)/bin/python -m pip install $(PIP_FLAGS) --editable '.[mutants]'
	@touch $(MUTANTS_READY)

# --- Measure ---

bench: $(READY) ## the cost of a run and everything around it, beside the floor: one table
	$(BIN)/python -m bench --report bench.json

bench-growth: $(READY) ## how that grows: with runs in flight, nodes, stored runs, streams
	$(BIN)/python -m bench.growth --report growth.json

bench-peers: $(READY) ## the same beside other platforms, each installed in an environment of its own (long)
	$(BIN)/python -m bench.peers --runs 1000 --rounds 2 --report peers.json $(if $(PEERS),--only $(PEERS))

bench-page: $(READY) ## write the figures of these reports into docs/performance
	$(BIN)/python -m bench.page $(wildcard bench.json growth.json peers.json)

bench-parts: $(READY) ## single parts: core, engine, worker, index, keys, wheels
	$(BIN)/python -m bench.core
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.worker
	$(BIN)/python -m bench.run_index
	$(BIN)/python -m bench.auth
	$(BIN)/python -m bench.wheels

# --- Documents and releases ---

docs: site ## write the generated documents, and build the site: build/site/index.html
	@echo "build/site/index.html"

site: generated # any warning fails the build, such as one about a broken link
	$(BIN)/python -m tools.links
	$(BIN)/python -m sphinx --builder html --quiet --fresh-env --fail-on-warning --keep-going --conf-dir . docs build/site

generated: $(READY) ## write the generated documents
	$(BIN)/python -m tools.state_diagrams
	$(BIN)/python -m tools.spec_coverage
	$(BIN)/python -m tools.reference

screenshots: $(READY) ## take the pictures of the documentation
	$(BIN)/python -m tools.dashboard_setup
	PYOCO_SCREENSHOTS=1 $(BIN)/python -m pytest -p no:randomly tests/dashboard/test_screenshots.py
	$(BIN)/python -m tools.terminal_capture

dist: $(READY) ## wheel and sdist, built twice and compared, and the bill of materials: dist/
	$(BIN)/python -m tools.release_check --build-only --dist dist

release-check: $(READY) ## the same, installed and used with every supported Python on this machine (minutes)
	$(BIN)/python -m tools.release_check --dist dist
