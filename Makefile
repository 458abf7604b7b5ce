# Every target makes what it needs; nothing but python3 (3.11+), pip, make and git has to be there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MUTANTS_VENV := .venv-mutants
MUTANTS_READY := $(MUTANTS_VENV)/.ready
# Where it is set, every process would compile all it imports once more, and the tests start hundreds of them.
unexport PYTHONDONTWRITEBYTECODE
# Most tests wait for servers and processes: a few more at a time than there are cores. What fails in such company is run
# once more, alone and in full view: a machine that is busy with other tests is no reason to fail, anything else is. If
# pytest itself broke off, nobody knows what it left out, and all of the group is run again.
# `make test` runs two groups at a time, so there that is done when all are through: `failed` remembers.
AT_ONCE := -n 3 --dist loadfile
# Without debug ranges: to underline code in tracebacks Python 3.11 parses it, which two threads cannot do at once while
# something of Python is called at each garbage collection, as hypothesis is. pytest broke off over that when it told of a
# failure beside a server that logged one.
PYTEST = PYTHONNODEBUGRANGES=1 $(BIN)/python -m pytest -o cache_dir=.pytest_cache/$(1)
FAILED := .pytest_cache/failed
ONLY_FAILED := --last-failed --last-failed-no-failures none -p no:randomly
define tests
$(call PYTEST,$@) $(1) $(2) || { \
	if [ $$? -eq 1 ]; then again="$(ONLY_FAILED) $(2)"; else again="$(1) $(2)"; fi; \
	$(if $(TOGETHER),mkdir -p $(FAILED) && echo "$$again" > $(FAILED)/$@,$(call PYTEST,$@) $$again); \
}
endef
EXAMPLES := $(addprefix examples/,demo.py hello.py async_tasks.py approval/approval.py nightly_report/nightly_report.py \
	model_training/model_training.py image_pipeline/image_pipeline.yaml agent/agent.yaml)
PIP_FLAGS := --quiet --disable-pip-version-check

.PHONY: help setup demo test failed check audit unit flows platform gateway dashboard screenshots properties cluster chaos book faults fuzz format bench bench-growth bench-peers bench-page bench-parts docs site generated mutants dist release-check clean

help:
	@echo "make demo        run an example flow and watch it"
	@echo "make test        static checks, then all tests"
	@echo "make check       static checks only"
	@echo "make audit       known weaknesses in our code and in what we depend on"
	@echo "make unit        the quick tests, with coverage"
	@echo "make flows       the engine, flow.yaml and isolation, with real threads and processes"
	@echo "make platform    NATS, settings, logs and workers, with real servers and processes"
	@echo "make gateway     HTTP, keys, wheels, the command lines, and everything killed under load"
	@echo "make dashboard   the dashboard in a real browser"
	@echo "make screenshots the pictures of the documentation, taken anew"
	@echo "make properties  the long ones: exploration, the simulator, golden logs, fuzzing, upgrades, faults on real nodes"
	@echo "make cluster     three NATS nodes, and everything under faults, also with three servers"
	@echo "make chaos       everything under faults for some minutes (CHAOS='--minutes 20 --topology three')"
	@echo "make book        README, tutorial and guides followed word by word; the release built, installed and used"
	@echo "make faults      every error of NATS at every write of every route"
	@echo "make fuzz        whatever comes in at the edges, for long"
	@echo "make bench       what a run costs, and everything around it, beside the floor: one table"
	@echo "make bench-growth how that grows: with runs in flight, nodes, stored runs, streams"
	@echo "make bench-peers the same beside other platforms, each installed in an environment of its own (long)"
	@echo "make bench-page  their figures into docs/performance"
	@echo "make bench-parts single parts: core, engine, worker, index, keys, wheels"
	@echo "make mutants     mutation testing of the core"
	@echo "make docs        write the generated documents anew, and build the site: build/site/index.html"
	@echo "make dist        wheel and sdist, built twice and compared: dist/"
	@echo "make release-check  the same, installed and used with every supported Python that is here (minutes)"
	@echo "make format      format the code"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python 3.11 or newer is needed: set PYTHON="; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

setup: $(READY)

demo: $(READY)
	@$(BIN)/pyoco-server dev $(EXAMPLES) --submit monthly-report || [ $$? -eq 130 ]

test: $(READY)
	@rm -rf $(FAILED)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target unit $(CHECKS) audit
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=line TOGETHER=1 $(GROUPS)
	@$(MAKE) --no-print-directory failed

# Two at a time, in this order: the longest begins, and none that is long for a single test is left for the end.
GROUPS := gateway flows platform properties book dashboard

failed: $(READY)
	@for group in $$(ls $(FAILED) 2>/dev/null); do \
		echo "once more, alone: what failed of $$group"; \
		$(call PYTEST,$$group) $$(cat $(FAILED)/$$group) || exit 1; \
	done

CHECKS := check-format check-lint check-types check-imports check-dependencies check-generated
.PHONY: $(CHECKS)

check: # all of them, also when one fails
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

check-generated: $(READY)
	$(BIN)/python -m tools.state_diagrams --check
	$(BIN)/python -m tools.spec_coverage --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.links

audit: $(READY)
	$(BIN)/python -m tools.audit $(if $(AUDIT_STRICT),--strict)

unit: $(READY)
	$(BIN)/coverage run -m pytest tests/core
	$(BIN)/coverage report --include='src/pyoco_server/core/*' --fail-under=100

flows: $(READY)
	$(call tests,$(AT_ONCE),tests/flows tests/isolation tests/engine tests/testing_kit examples)

platform: $(READY)
	$(call tests,$(AT_ONCE),tests/foundation tests/nats_server tests/adapters tests/readmodel tests/worker tests/sweeping tests/interop)

gateway: $(READY)
	$(call tests,-n 4 --dist worksteal,tests/gateway tests/auth tests/wheels tests/client tests/cli tests/kill)

dashboard: $(READY)
	$(BIN)/python -m tools.dashboard_setup
	$(call tests,-n 3 --dist loadfile,tests/dashboard)

screenshots: $(READY)
	$(BIN)/python -m tools.dashboard_setup
	PYOCO_SCREENSHOTS=1 $(BIN)/python -m pytest -p no:randomly tests/dashboard/test_screenshots.py
	$(BIN)/python -m tools.terminal_capture

properties: $(READY) # the longest first, in this order
	$(call tests,-n 4 --dist loadfile --no-loadscope-reorder --randomly-dont-reorganize,tests/chaos tests/sim tests/fuzz tests/properties tests/cluster tests/upgrade tests/golden tests/docs_site tests/bench)

cluster: $(READY)
	PYOCO_CHAOS_THREE=1 $(BIN)/python -m pytest tests/cluster tests/chaos

chaos: $(READY)
	$(BIN)/python -m chaos $(CHAOS)

book: $(READY)
	$(call tests,$(AT_ONCE),tests/migration tests/docs tests/howto tests/release)

faults: $(READY)
	PYOCO_ALL_FAULTS=1 $(BIN)/python -m pytest -p no:randomly --timeout 3600 tests/gateway/test_nats_faults.py

fuzz: $(READY)
	PYOCO_FUZZ=$${PYOCO_FUZZ:-50} $(BIN)/python -m pytest -n 2 --timeout 3600 tests/fuzz tests/worker/test_own_graph_random.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m bench --report bench.json

bench-growth: $(READY)
	$(BIN)/python -m bench.growth --report growth.json

bench-peers: $(READY)
	$(BIN)/python -m bench.peers --runs 1000 --rounds 2 --report peers.json $(if $(PEERS),--only $(PEERS))

bench-page: $(READY)
	$(BIN)/python -m bench.page $(wildcard bench.json growth.json peers.json)

bench-parts: $(READY)
	$(BIN)/python -m bench.core
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.worker
	$(BIN)/python -m bench.run_index
	$(BIN)/python -m bench.auth
	$(BIN)/python -m bench.wheels

docs: site
	@echo "build/site/index.html"

site: generated # a link or an anchor that leads nowhere fails the build, as does any other warning
	$(BIN)/python -m tools.links
	$(BIN)/python -m sphinx --builder html --quiet --fresh-env --fail-on-warning --keep-going --conf-dir . docs build/site

generated: $(READY)
	$(BIN)/python -m tools.state_diagrams
	$(BIN)/python -m tools.spec_coverage
	$(BIN)/python -m tools.reference

mutants: $(MUTANTS_READY)
	PATH="$(CURDIR)/$(MUTANTS_VENV)/bin:$$PATH" $(MUTANTS_VENV)/bin/python -m tools.mutants

$(MUTANTS_READY): pyproject.toml
	@test -d $(MUTANTS_VENV) || $(PYTHON) -m venv $(MUTANTS_VENV)
	@$(MUTANTS_VENV)/bin/python -m pip install $(PIP_FLAGS) --editable '.[mutants]'
	@touch $(MUTANTS_READY)

dist: $(READY)
	$(BIN)/python -m tools.release_check --build-only --dist dist

release-check: $(READY)
	$(BIN)/python -m tools.release_check --dist dist

clean:
	rm -rf $(VENV) $(MUTANTS_VENV) mutants dist build .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
