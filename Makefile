# Targets a person or CI calls; each says what it does in `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= $(CURDIR)/.venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
PACKAGES := core plugin gateway netem loadtest cli
export VENV

SEED ?= 1
SIM_REQUESTS ?= 20000

.PHONY: help setup demo check test unit engines sim sim-tables bench-sim e2e clean fuzz soak bench-peers-setup bench-transport bench-report bench-pipelining bench-pool drills table6

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install all that is needed; quick when nothing is missing
	@cli/setup/setup.sh

demo: setup ## deploy two emulated regions on this machine and send a short and a long prompt
	@cli/setup/demo.sh

check: ## lint, format, types, import arrows
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy $(PACKAGES)
	$(BIN)/lint-imports --no-cache

test: export SETUP_FOR = tests
test: setup check unit engines ## everything CI runs: check, then all tests

unit: ## tests without engines: unit, vectors, property, sim; a process per core
	$(PYTEST) -n auto --dist worksteal tests/unit tests/property tests/sim

engines: ## the rest, one after the other: real sockets, namespaces, etcd, SGLang
	$(PYTEST) --durations=30 tests/integration tests/e2e tests/chaos

sim: ## all policies in virtual time from SEED=1; the digest at the end tells a replay
	@$(BIN)/prfaasctl simulate --seed $(SEED) --requests $(SIM_REQUESTS)

sim-tables: ## make docs/simulation-tables.md again; some minutes
	$(BIN)/prfaasctl simulate --tables > docs/simulation-tables.md.new
	mv docs/simulation-tables.md.new docs/simulation-tables.md

bench-sim: ## how fast the simulator is, and what it takes in memory; reports only
	@$(BIN)/python tests/bench/simulator_speed.py

DRILLS ?= --all
drills: setup ## all chaos drills of the library (root; some 25 minutes); reports in build/drills
	$(BIN)/prfaasctl drill run $(DRILLS) --report build/drills

e2e: ## tests with real SGLang engines
	$(PYTEST) -m e2e tests

BENCH_VENV := $(CURDIR)/build/bench/venv
bench-peers-setup: ## install what bench-transport measures beside the lanes (Mooncake, NIXL) into build/bench/venv
	@VENV=$(VENV) tests/bench/transport/peers_setup.sh $(BENCH_VENV)

bench-transport: setup bench-peers-setup ## the lanes beside iperf3, a plain copy, Mooncake and NIXL, on emulated links (root; 12 minutes)
	$(BIN)/python tests/bench/transport/run.py

bench-pool: setup ## conversations with a prefix pool and without, and between regions: hit rate, TTFT (6 minutes)
	$(BIN)/python tests/bench/pool.py
	$(BIN)/python tests/bench/pool_moves.py

bench-report: ## make docs/benchmarks.md of the last bench-transport
	$(BIN)/python tests/bench/transport/report.py

bench-pipelining: ## time to first token across regions beyond the local one, by layer and by chunk (root; 5 minutes)
	$(BIN)/python tests/bench/pipelining.py

SECONDS ?= 60
fuzz: ## fuzz frames and transfer machines for SECONDS (60), guided by coverage
	@$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/pip install -q "atheris>=3,<4"
	$(BIN)/python tests/fuzz/fuzz.py $(SECONDS)

soak: ## lanes between processes that die, over links that misbehave, for SECONDS (60) from SEED=1
	@PYTHONPATH=tests/support $(BIN)/python tests/integration/transport/soak.py $(SECONDS) $(SEED)

bench-twin: ## what engine twins cost: CPU of a request, of 100 idle ones; a minute
	PYTHONPATH=tests/support $(BIN)/python tests/bench/twin/cost.py --instances 100 --requests 150 --tokens 256

table6: setup ## the paper's Table 6 measured on engine twins, into docs/table6.md (root; half an hour)
	$(BIN)/python tests/bench/table6/measure.py
	$(BIN)/python tests/bench/table6/report.py

clean: ## remove caches; .venv stays (remove it by hand to start over)
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +
