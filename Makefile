# make demo            a first run on sample media
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

.PHONY: install demo test test-all test-material chaos fuzz lint format bench cluster-test clean

install: $(STAMP)

# `fetch` gets MediaPipe's own wheel of 0.10.21, which carries its pose networks: a source of weights, never installed.
# lama-cleaner pins old versions of half our dependencies, so it comes without them.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,inpaint]'
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps lama-cleaner==1.2.5
	$(BIN)/framekiln fetch pose_landmarker_full_bundled face_landmarker_bundled
	touch $@

$(SAMPLES)/.made: pipeline/framekiln/media/samples.py $(STAMP)
	$(BIN)/python -m framekiln.media.samples $(SAMPLES)
	touch $@

# Faces and identities need 4.3 MB of weights from GitHub. They are tried for a minute at most; the run prints how to fetch all others.
demo: $(SAMPLES)/.made
	timeout 60 $(BIN)/framekiln fetch yunet_n_dynamic mobilefacenet 2>/dev/null || echo "Not downloaded: networks for faces (4.3 MB)."
	$(BIN)/framekiln run --profile cpu-only --input $(SAMPLES) --output $(OUT) --missing-weights skip

# Tests that start Ray (`slow`) run two at a time, each with a Ray of its own. The others share the cores.
test: install
	$(BIN)/python -m pytest -m "not (slow or heavy or chaos or cluster)" -n auto --dist loadfile
	$(BIN)/python -m pytest -m "slow and not (heavy or chaos or cluster)" -n 2 --dist loadfile

test-all: install
	$(BIN)/python -m pytest -m "heavy and not (slow or chaos or cluster)" -n auto --dist loadfile
	$(BIN)/python -m pytest -m "heavy and slow and not (chaos or cluster)" -n 2 --dist loadfile

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
	$(BIN)/python -m benchmarks.stages --small

clean:
	rm -rf out samples .cache build dist
