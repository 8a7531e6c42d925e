# One command each; every target makes the environment it needs in .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AVALANCHE := .venv-avalanche
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# tests run in one process more than there are cores, each with one thread: some wait for others to die
JOBS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

.PHONY: demo test test-avalanche check fuzz bench results docs lock clean

demo: $(VENV)/.demo
	$(BIN)/equable demo

test: $(VENV)/.test
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Avalanche brings a torchvision that breaks other packages: it has an environment of its own. Where that
# cannot be made the tests are skipped, with the reason above the last line; a test that fails, fails.
test-avalanche:
	@if $(MAKE) --no-print-directory $(AVALANCHE)/.test; then \
		OMP_NUM_THREADS=1 $(AVALANCHE)/bin/python -m pytest -q tests/integrations/test_avalanche*.py; \
	else echo "test-avalanche: skipped, avalanche-lib could not be installed"; fi

check: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_private_names.py

# So many hostile files for each reader; the ordinary tests try a few of them.
FUZZ ?= 1500
fuzz: $(VENV)/.test
	OMP_NUM_THREADS=1 EQUABLE_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz --timeout 0

bench: $(VENV)/.test
	$(BIN)/python -m speed $(ONLY)

# Every table and figure of docs/results, and the README's, from the outputs stored in results/.
# The page of one run alone: make results RUN=cifar10-slim
results: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m published $(RUN)

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	EQUABLE_SITE=docs/_build $(BIN)/python -m pytest -q tests/test_docs_site.py -k TheSite

# An extra is installed once, and again when pyproject.toml or constraints.txt change.
# Bytecode is compiled at install, so that the first start is as quick as the second.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[train,report]'
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(PIP) -e '.[lint]'
	touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) -e '.[docs]'
	touch $@

$(AVALANCHE)/.test: pyproject.toml constraints.txt constraints-avalanche.txt
	$(PYTHON) -m venv $(AVALANCHE)
	$(AVALANCHE)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -c constraints-avalanche.txt avalanche-lib -e . pytest pytest-timeout
	touch $@

# Needs uv; torch is pinned to a release with CPU wheels, and GPU packages are left to the platform.
lock:
	printf 'torch==2.13.0\n' > $(VENV)/torch.in
	uv pip compile --universal --no-config -p 3.11 pyproject.toml $(VENV)/torch.in --all-extras \
		--no-annotate --no-header --no-emit-index-url \
		| grep -vE '^(nvidia-|triton|cuda-)' \
		| sed '1i # Versions the tests and the stored results were made with; made by `make lock`.' > constraints.txt

clean:
	rm -rf $(VENV) $(AVALANCHE) docs/_build .pytest_cache .mypy_cache .ruff_cache
