# make demo    from a fresh clone to a trained translator, on the embedded corpus
# make test    the tests without the slow ones
# make test-all, make check   every test; with lint and types
# make test-machines  tests that depend on the processor, the user or the locale, as other machines run them
# make coverage  every test, and the branches that none of them takes
# make fuzz    wrong models and calls for the engine, under sanitizers, and wrong models to import, each for
#              FUZZ_SECONDS (120)
# make snakemake  the workflow of docs/jobs.md, twice, with MODEL (runs/demo)
# make docs    the documentation site, in build/site
# make wheel   this platform's wheel, in dist/
# make image   a Docker image of nmt serve, without torch
# make pictures  the pictures of README, after make demo

PYTHON ?= python3
VENV   ?= .venv
NMT     = $(VENV)/bin/nmt
PACKAGES = $(VENV)/.packages
TOOLS    = $(VENV)/.tools
SOURCES = $(wildcard nmt_cli/engine/src/*)
WORKERS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all test-machines coverage lint types check fuzz snakemake docs wheel image pictures clean

$(PACKAGES): pyproject.toml constraints.txt nmt_cli/engine/CMakeLists.txt $(SOURCES)
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(0 if ok else "nmt needs Python 3.11 to 3.13; this is %s. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" % sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned packages, and compiling the engine: one to four minutes."
	@$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

# What tests, lint and documentation need beside it.
$(TOOLS): $(PACKAGES)
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt 'nmt-cli[dev]'
	@touch $@

TEXT = data/demo/text

demo: $(PACKAGES)
	$(NMT) preprocess demo
	$(NMT) train demo
	$(NMT) average runs/demo
	$(NMT) translate --model runs/demo/averaged < $(TEXT)/test.en > runs/demo/test.de
	$(NMT) score runs/demo/test.de --ref $(TEXT)/test.de
	@paste -d '\t' runs/demo/test.de $(TEXT)/test.de | awk -F '\t' '$$1 == $$2 { n++ } END { printf "exact sentences: %.1f %% of %d unseen ones\n", 100 * n / NR, NR }'
	@echo; echo "Some of them (English / nmt / reference):"; echo
	@paste -d '\n' $(TEXT)/test.en runs/demo/test.de $(TEXT)/test.de | awk 'NR > 18 { exit } { print "  " $$0 } NR % 3 == 0 { print "" }'
	@echo "Now yours:  echo 'The rabbit sleeps.' | $(NMT) translate --model runs/demo"

test: $(TOOLS)
	$(VENV)/bin/python -m pytest -q $(WORKERS) -m 'not slow'

test-all: $(TOOLS)
	$(VENV)/bin/python -m pytest -q $(WORKERS)

test-machines: $(PACKAGES)
	$(VENV)/bin/python tools/other_machines.py

coverage: export COVERAGE_FILE = $(CURDIR)/build/coverage/data
coverage: $(TOOLS)
	rm -rf build/coverage && mkdir -p build/coverage
	$(VENV)/bin/coverage run -m pytest -q $(WORKERS)
	$(VENV)/bin/coverage combine -q
	$(VENV)/bin/coverage html -q -d build/coverage/html
	$(VENV)/bin/coverage report --skip-covered --sort cover --show-missing

lint: $(TOOLS)
	$(VENV)/bin/ruff check nmt_cli tests benchmarks tools
	$(VENV)/bin/ruff format --check nmt_cli tests benchmarks tools
	$(VENV)/bin/clang-format --dry-run -Werror $(SOURCES)

types: $(TOOLS)
	$(VENV)/bin/mypy

check: lint types test-all

CLANG ?= clang++
FUZZ_SECONDS ?= 120
FUZZ = build/fuzz/hostile
FUZZ_FLAGS = -std=c++17 -O1 -g -march=native -ffp-contract=off -fopenmp-simd -pthread -w -DNMT_INSTRUCTIONS='""' tests/engine/hostile.cpp
FUZZ_CHECKS = -fsanitize=address,undefined -fno-sanitize-recover=undefined

# With clang's libFuzzer, which looks for new paths; without it, with random inputs. Then threads.
fuzz: export ASAN_OPTIONS = allocator_may_return_null=1
fuzz: $(TOOLS)
	mkdir -p build/fuzz/corpus
	@if $(CLANG) -fsanitize=fuzzer $(FUZZ_CHECKS) -DNMT_LIBFUZZER $(FUZZ_FLAGS) -o $(FUZZ) 2> build/fuzz/clang.log; then \
	    $(FUZZ) build/fuzz/corpus -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_SECONDS) -max_len=1024 -len_control=0 -verbosity=0 -print_final_stats=1; \
	else \
	    echo "$(CLANG) has no libFuzzer (build/fuzz/clang.log): random inputs" && $(CXX) $(FUZZ_CHECKS) $(FUZZ_FLAGS) -o $(FUZZ) && $(FUZZ) $(FUZZ_SECONDS); \
	fi
	$(CXX) -fsanitize=thread -DNMT_THREADS $(FUZZ_FLAGS) -o $(FUZZ)-threads
	$(FUZZ)-threads threads 10
	$(VENV)/bin/python tests/support/fuzz_imports.py $(FUZZ_SECONDS)

MODEL ?= runs/demo
FLOW   = build/snakemake

# The second time, each output is left alone. The parts are together what one command writes.
snakemake: export PATH := $(abspath $(VENV))/bin:$(PATH)
snakemake: $(PACKAGES)
	@test -d $(MODEL) || { echo "there is no model $(MODEL): train it with make demo, or name another one: make snakemake MODEL=..." >&2; exit 1; }
	$(PYTHON) -m venv $(FLOW)/venv && $(FLOW)/venv/bin/python -m pip install --quiet 'snakemake<10'
	rm -rf $(FLOW)/parts && mkdir -p $(FLOW)/parts $(FLOW)/runs && ln -sfn $(abspath $(MODEL)) $(FLOW)/runs/demo
	sed -n '/^PARTS/,/^```/{/^```/!p;}' docs/jobs.md > $(FLOW)/Snakefile
	split -l 30 --additional-suffix=.en README.md $(FLOW)/parts/ && gzip $(FLOW)/parts/*
	cd $(FLOW) && venv/bin/snakemake --cores 2 --quiet all && ls -i parts > before
	cd $(FLOW) && venv/bin/snakemake --cores 2 --quiet all --forceall && ls -i parts | diff before -
	cat $(FLOW)/parts/*.de.gz | gzip -d > $(FLOW)/joined.de
	$(NMT) translate -m $(MODEL) -i README.md | cmp - $(FLOW)/joined.de

$(VENV)/.docs: $(TOOLS)
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt 'nmt-cli[docs]'
	@touch $@

# Strict: a broken link or anchor is an error.
docs: $(VENV)/.docs
	$(VENV)/bin/python tools/documentation.py build/docs-source
	$(VENV)/bin/zensical build --clean --strict

wheel: $(TOOLS)
	$(VENV)/bin/python -m build

pictures: $(TOOLS)
	$(VENV)/bin/python tools/pictures.py

image:
	@command -v docker > /dev/null || { echo "make image needs docker: https://docs.docker.com/engine/install" >&2; exit 1; }
	docker build --tag nmt .

clean:
	rm -rf .cache build dist nmt_cli/engine/lib $(VENV)
