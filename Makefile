# Each target sets up what it needs, in a fresh clone too. `make` alone lists them.
VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/installed-from-pyproject
EXTRAS := jax,dev,report,schedule

# How long `make demo` searches.
DEMO_FOR := 90s
GEVO = $(PYTHON) -m gevo
BENCHMARKS = families.py steps.py "steps.py --threads 2" vs_iree.py search_rate.py fuzz.py compare_search.py noise.py dtypes.py "random_functions.py --count 2000"

.DEFAULT_GOAL := help
.PHONY: help setup data demo test bench lint clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 8

setup: $(INSTALLED) ## virtual environment in .venv with gevo and its extras

$(INSTALLED): pyproject.toml
	@test -x $(PYTHON) || { \
	  for python in $$GEVO_PYTHON python3.13 python3.12 python3.11 python3 python; do \
	    $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	      && { echo "setup: $(VENV) with $$($$python --version)"; exec $$python -m venv $(VENV); }; \
	  done; \
	  echo "setup: found no Python 3.11, 3.12 or 3.13 with venv; install one (Debian: python3-venv)," \
	       "or name it: make setup GEVO_PYTHON=path/to/python" >&2; exit 1; }
	@echo "setup: installing gevo[$(EXTRAS)], a few minutes the first time"
	@$(PYTHON) -m pip install -qq --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

data: setup ## Fashion-MNIST, from Debian's package, without root
	@$(PYTHON) -m workloads.data

demo: setup ## search a digits classifier, draw its front, export the fastest as accurate as the base, train with it
	@rm -rf runs/demo runs/demo-fastest
	@$(GEVO) search digits --for $(DEMO_FOR) --seed 0 --name demo
	@$(GEVO) front demo --plot runs/demo/front.png >/dev/null && echo "The front as a picture: runs/demo/front.png"
	@$(GEVO) show demo fastest
	@$(GEVO) export demo fastest --to runs/demo-fastest
	@$(PYTHON) examples/train_exported.py runs/demo-fastest

test: setup ## all tests that this machine can run
	@$(PYTHON) -m workloads.data || echo "test: going on without it; tests that need Fashion-MNIST are skipped"
	@$(PYTHON) -m pytest -q -n auto

bench: setup ## the benchmarks, with tables and pictures in build/bench; about three hours, on a quiet machine
	@$(PYTHON) -m pip install -qq --disable-pip-version-check -e '.[bench]' \
	  || echo "bench: going on without PyTorch or IREE; their columns are empty"
	@for bench in $(BENCHMARKS); do echo "== $$bench"; $(PYTHON) benchmarks/$$bench || exit 1; done

lint: setup ## ruff, pyright, import-linter
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/pyright
	@$(VENV)/bin/lint-imports

clean: ## remove the virtual environment and what tools left; runs/ stays
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
