# Everything a fresh machine needs: Python 3.11+ and a C++ compiler. `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch# pip requirement; a machine without a GPU can name a CPU build here
SPECS ?= $(wildcard specs/*.yaml)
DEMO_SPEC ?= specs/h100_fp8.yaml
BENCH_SPECS ?= $(wildcard specs/h200_fa2*.yaml specs/h200_fa3*.yaml specs/h200_fp8*.yaml)

BIN := $(VENV)/bin
FAGEN := $(BIN)/fagen
CUDA_FILES = $(shell find templates/include fagen/emu/runtime -name '*.cuh' -o -name '*.hpp' -o -name '*.h')

.PHONY: demo test support gpu-test gpu lint format check clean

demo: $(VENV)/.installed ## build a spec and run it, on the GPU or where there is none in the emulator
	$(FAGEN) build $(DEMO_SPEC)
	$(FAGEN) run $(DEMO_SPEC)

test: $(VENV)/.installed-test ## the tests that need no GPU, less the slow ones
	$(BIN)/python -m pytest -m "not gpu and not slow" -n 2

support: $(VENV)/.installed-test ## every feature on every arch in the emulator; records it and prints the README's table
	$(BIN)/python -m pytest -m "slow and not gpu" -n 2
	$(FAGEN) support --into README.md

gpu-test: $(VENV)/.installed-test ## the tests that need a GPU; records what runs for `fagen support`
	$(BIN)/python -m pytest -m gpu

gpu: gpu-test ## those, then the speed against other implementations
	$(FAGEN) bench $(BENCH_SPECS)

lint: $(VENV)/.installed-dev ## formatting, lint, types, the floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/clang-format --dry-run --Werror $(CUDA_FILES)

format: $(VENV)/.installed-dev ## mend what `make lint` can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CUDA_FILES)

check: $(VENV)/.installed ## generated/ is what the specs and templates print
	$(FAGEN) emit --check $(SPECS)

clean: ## the virtual environment; everything else is kept
	rm -rf $(VENV)

# A stamp per set of extras: nothing is installed again until pyproject.toml changes.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(1)'
	@touch $@
endef

$(VENV)/.installed: pyproject.toml
	$(call install)

$(VENV)/.installed-test: pyproject.toml
	$(call install,[test])

$(VENV)/.installed-dev: pyproject.toml
	$(call install,[dev])
