# make demo            a first run on sample media, with the weights that are at hand
# make demo-full       the same run with all steps: fetches 1.0 GB of weights
# make test            each stage and command, most failure rules
# make test-all        the other tests
# make test-material   download real media and small networks, which some tests need (tests/material.yaml, 48 MB)
# make chaos           runs that are killed at many moments, and other faults: half an hour
# make fuzz            damaged media for ten minutes, and damaged outputs for five
# make cluster-test    a Ray cluster over ssh on this machine: minutes, needs root
# make lint            ruff, mypy --strict, order of imports
# make bench           the benchmarks, with their ratios
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SAMPLES := samples/media
OUT := out/demo
EXTRAS := dev,inpaint
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# The package index's torch is a build for CUDA: 2.7 GB to download, 4.6 GB on disk. Without an NVIDIA GPU, the CPU build will do, of 0.2 GB:
# make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX :=

.PHONY: install demo demo-about demo-full test test-all test-material chaos fuzz lint format bench cluster-test clean

install: $(STAMP)

# pip prints hundreds of lines, and none for a minute while it unpacks: a line each 15 s shows that it goes on.
define pip_install
	@log=$(VENV)/install.log; start=$$(date +%s); : > $$log; \
	( while sleep 15 && kill -0 $$$$ 2>/dev/null; do \
	    printf '%5d s %6d MB  %.50s\n' $$(($$(date +%s) - start)) $$(du -sm $(VENV) | cut -f1) \
	      "$$(grep -oE '^ *(Collecting|Downloading|Using cached|Installing) .*' $$log | tail -n 1 | sed 's/^ *//; s/ collected packages.*/ them/')"; \
	  done ) & \
	$(PIP) $(1) >> $$log 2>&1; code=$$?; kill $$!; \
	if [ $$code != 0 ]; then tail -n 15 $$log; echo "pip failed: its last lines are above, all are in $$log. The same command continues."; exit $$code; fi
endef

# `fetch` gets MediaPipe's own wheel of 0.10.21, which carries its pose networks: a source of weights, never installed.
# lama-cleaner pins old versions of half our dependencies, so it comes without them.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): seconds, size, and what pip is at; all of it is in $(VENV)/install.log."
	$(if $(TORCH_INDEX),$(call pip_install,-c constraints.txt --index-url $(TORCH_INDEX) torch))
	$(call pip_install,-c constraints.txt -e '.[$(EXTRAS)]')
	@$(PIP) -qq --no-deps lama-cleaner==1.2.5
	$(BIN)/framekiln fetch pose_landmarker_full_bundled face_landmarker_bundled
	@touch $@

$(SAMPLES)/.made: pipeline/framekiln/media/samples.py $(STAMP)
	$(BIN)/python -m framekiln.media.samples $(SAMPLES)
	touch $@

# Measured with every package in pip's cache: 174 and 160 s to install (25 November 2026), 19 and 23 s for the run (27 November),
# 37 s beside other programs (26 November). Every step: 227 s for 20 photos with random weights (docs/measuring/performance.md).
demo: RUNS := runs the steps that need no large weights: half a minute to one, 2 MB in $(OUT)
demo-full: RUNS := fetches up to 1.0 GB of weights, and runs every step on 228 frames: 11 s a frame without a GPU
demo-about:
	@test -e $(STAMP) || echo "First, about 150 packages: $(if $(TORCH_INDEX),3.2,7.1) GB in $(VENV), 3 minutes and the time to download them."
	@test -e $(STAMP) -o -n "$(TORCH_INDEX)" || echo "4.6 GB of it are torch for NVIDIA GPUs. Without one: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu"
	@echo "This makes six sample files (1 MB) and $(RUNS)."
	@echo "Measured on two shared cores of an AMD EPYC. It may be stopped at any time; the same command continues."

# Faces and identities need 4.3 MB of weights from GitHub. They are tried for a minute at most.
demo: demo-about $(SAMPLES)/.made
	@timeout 60 $(BIN)/framekiln fetch yunet_n_dynamic mobilefacenet || echo "Not downloaded: networks for faces (4.3 MB). The run goes on without them."
	$(BIN)/framekiln run $(SAMPLES) $(OUT) --missing-weights skip
	@grep -q '"skipped": {}' $(OUT)/run.json || echo "Both in one command: make demo-full (fetches 1.0 GB at most, and runs every step)."

demo-full: demo-about $(SAMPLES)/.made
	$(BIN)/framekiln fetch
	$(BIN)/framekiln run $(SAMPLES) $(OUT)

test: install
	$(BIN)/python -m pytest -m "not (heavy or chaos or cluster)" -n auto --dist loadfile

# Two at a time, since many of them start Ray or further processes. In order: the long ones do not come last.
test-all: install
	$(BIN)/python -m pytest -m "heavy and not (chaos or cluster)" -n 2 --dist loadfile --no-loadscope-reorder

test-material: install
	$(BIN)/python -m tests.support.media.material_download

chaos: install
	$(BIN)/python -m pytest -m chaos

fuzz: install
	$(BIN)/python -m tests.faults.fuzz.fuzz_outputs out/fuzz-outputs --minutes 5
	$(BIN)/python -m tests.faults.fuzz.fuzz_media out/fuzz --minutes 10

cluster-test: install
	$(BIN)/python -m pytest -m cluster tests/engine/test_cluster.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install $(SAMPLES)/.made
	$(BIN)/python -m benchmarks.engine_overhead
	$(BIN)/python -m benchmarks.identities
	$(BIN)/framekiln bench lighting,categorize,faces --device cpu --batch 1,8

clean:
	rm -rf out samples .cache build dist
