# make demo   the embedded experiment, from rollouts in a simulator to a report      make test   linters and all tests
# make sql    DuckDB's shell on every number of every tag      make bench   speed and memory    make lint   make lock (all locks anew)
# make evidence   replicates of the experiments config/experiments/evidence_*.yaml (hours; resumable), and docs/evidence/
# make plan   what a run would cost      make environment   sets up .venv and nothing else
#
# Needs python3 and git. On an Ascend node: make LOCK=envs/ascend.txt demo; with the simulator LIBERO: LOCK=envs/libero.txt
# Another experiment: make plan CONFIG=mine.yaml, make sql CONFIG=… and, with SEED=1, its replicate
# One question: make sql QUERY=docs/queries/worst_episodes.sql

LOCK ?= envs/requirements.txt
CORES ?= 2
CONFIG ?= config/config.yaml
REPLICATE = $(if $(SEED),--config experiment=$(notdir $(basename $(CONFIG)))_seed$(SEED) seed=$(SEED))
EVIDENCE_TASKS ?= $(patsubst config/experiments/evidence_%.yaml,%,$(wildcard config/experiments/evidence_*.yaml))
EVIDENCE_SEEDS ?= 0 1 2
UV := .uv/bin/uv
BIN := .venv/bin
ENVIRONMENT := .venv/.installed
COMPILE := pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.12 --config-file envs/metadata.toml

# A shim of pyenv runs only the version that is chosen here: the newest 3.12. Without any Python 3.12, uv fetches one.
export PYENV_VERSION := $(shell pyenv versions --bare 2>/dev/null | grep -E '^3\.12\.[0-9]+$$' | sort -V | tail -n 1)
export UV_COMPILE_BYTECODE := 1
export OMP_NUM_THREADS := 1
export MUJOCO_GL := egl
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo evidence environment test lint plan sql bench lock

demo: $(ENVIRONMENT)
	@$(BIN)/python -c 'import ctypes; ctypes.CDLL("libEGL.so.1")' 2>/dev/null || \
	  { echo "error: the simulator renders with EGL; install it: apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri libgl1"; exit 1; }
	$(BIN)/snakemake --cores $(CORES)
	@cat results/demo/report/summary.txt
	@echo "Report: results/demo/report/index.html"

# Seed by seed, so that all tasks have the first one soon. How to run one replicate: docs/evidence/README.md
evidence: $(ENVIRONMENT)
	set -e; for seed in $(EVIDENCE_SEEDS); do for task in $(EVIDENCE_TASKS); do \
	  $(BIN)/snakemake evaluations --configfile config/experiments/evidence_$$task.yaml --cores $(CORES) \
	    --config experiment=evidence_$${task}_seed$$seed seed=$$seed; done; done
	$(BIN)/python workflow/scripts/summarise_evidence.py --config $(EVIDENCE_TASKS:%=config/experiments/evidence_%.yaml) \
	  --seeds $(EVIDENCE_SEEDS) --output-dir docs/evidence

environment: $(ENVIRONMENT)

test: lint
	$(BIN)/pytest -n $(CORES) --dist loadfile

lint: $(ENVIRONMENT)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

plan: $(ENVIRONMENT)
	@commands="$$($(BIN)/snakemake --configfile $(CONFIG) --cores $(CORES) -n -p $(REPLICATE) 2>&1)" || { printf "%s\n" "$$commands"; exit 1; }; \
	  printf "%s\n" "$$commands" | $(BIN)/python -m recap_steam.costs --config $(CONFIG) $(SEED:%=--seed %) $(if $(DEVICE),--device "$(DEVICE)")

sql: $(ENVIRONMENT)
	@$(BIN)/python -m recap_steam.report.catalogue --config $(CONFIG) $(SEED:%=--seed %) -- $(if $(QUERY),-f $(QUERY))

bench: $(ENVIRONMENT)
	$(BIN)/python benchmarks/labels.py
	$(BIN)/python benchmarks/snakemake_dry_run.py
	$(BIN)/python benchmarks/input_pipeline.py
	$(BIN)/python benchmarks/steam_scores.py
	$(BIN)/python benchmarks/videos.py
	$(BIN)/python benchmarks/full_size_critic.py
	$(BIN)/python benchmarks/serving.py

lock: .uv/.installed
	$(UV) $(COMPILE) envs/requirements.in --output-file envs/requirements.txt
	$(UV) $(COMPILE) envs/ascend.in --output-file envs/ascend.txt
	$(UV) $(COMPILE) envs/libero.in --output-file envs/libero.txt

$(ENVIRONMENT): $(LOCK) pyproject.toml .uv/.installed
	$(UV) venv --quiet --allow-existing --python 3.12 .venv
	$(UV) pip sync --quiet --python .venv --require-hashes $(LOCK)
	$(UV) pip install --quiet --python .venv --no-deps --no-build-isolation --editable .
	@touch $@

.uv/.installed: envs/uv.txt
	python3 -m venv --clear .uv
	.uv/bin/python -m pip install --quiet --require-hashes --requirement envs/uv.txt
	@touch $@
