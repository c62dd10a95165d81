# make demo    a first run on sample media          make lint    ruff and mypy --strict
# make test    tests, but for faults and cluster    make bench   the benchmarks, with their ratios
# make fuzz    damaged media for ten minutes        make chaos   runs killed at many moments, and other faults: half an hour
# make cluster-test   a Ray cluster over ssh, on this machine: four minutes, needs root
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SAMPLES := samples/media
OUT := out/demo

.PHONY: install demo test test-fast chaos fuzz lint format bench cluster-test clean

install: $(STAMP)

# `fetch` gets MediaPipe's own wheel of 0.10.21, which carries its pose networks: a source of weights, never installed.
# lama-cleaner pins old versions of half our dependencies, so it comes without them.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,inpaint]'
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps lama-cleaner==1.2.5
	$(BIN)/framemill fetch pose_landmarker_full_bundled
	touch $@

$(SAMPLES)/.made: samples/make.py $(STAMP)
	$(BIN)/python samples/make.py $(SAMPLES)
	touch $@

demo: $(SAMPLES)/.made
	$(BIN)/python pipeline/run.py --profile cpu-only --input $(SAMPLES) --output $(OUT) --missing-weights skip

# What starts Ray has the machine to itself, one test after the other. The rest shares the cores.
test: install
	$(BIN)/python -m pytest -m "not (slow or chaos or cluster)" -n auto --dist loadfile
	$(BIN)/python -m pytest -m "slow and not (chaos or cluster)"

test-fast: install
	$(BIN)/python -m pytest -m "not (slow or heavy or chaos or cluster)" -n auto --dist loadfile

chaos: install
	$(BIN)/python -m pytest -m chaos

fuzz: install
	$(BIN)/python -m tests.faults.fuzz_media out/fuzz --minutes 10

cluster-test: install
	$(BIN)/python -m pytest -m cluster tests/test_cluster.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install $(SAMPLES)/.made
	$(BIN)/python benchmarks/engine_overhead.py
	$(BIN)/python benchmarks/identities.py
	$(BIN)/python benchmarks/stages.py --small

clean:
	rm -rf out samples/media .cache build *.egg-info
