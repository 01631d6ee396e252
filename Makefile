# Each target does one thing. It runs `setup` first, which costs nothing when it was done before.
#
#   make test ARGS="-k recover"         passes arguments to pytest; bench, bench-against and sweep take ARGS, too
#   make clean setup PYTHON=python3.12  uses this interpreter instead of the first suitable one

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install

PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
WILL_DO := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
IS_SOUND := import sys, pip; sys.exit(sys.version_info < (3, 11))

.PHONY: setup demo test lint types bench bench-against docs faults-short sweep clean

setup: $(READY)
	@echo "setup: $(VENV) is ready"

$(READY): pyproject.toml
	@echo "setup: installing Perdure and its development tools into $(VENV); a minute or two the first time"
	@$(BIN)/python -c '$(IS_SOUND)' 2>/dev/null || { found=; \
	  for candidate in $(PYTHONS); do \
	    if "$$candidate" -c '$(WILL_DO)' 2>/dev/null; then found="$$candidate"; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "setup: none of these is a Python >= 3.11 that can make a virtual environment: $(PYTHONS)" >&2; \
	    echo "setup: install one (Debian, Ubuntu: python3-venv), or name it: make setup PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	  fi; \
	  "$$found" -m venv --clear $(VENV); \
	}
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --editable . --group dev
	@touch $@

demo: $(READY)
	@echo "demo: killing a run with SIGKILL half way and resuming it in another process"
	@$(BIN)/python examples/crash_and_resume.py

test: $(READY)
	@echo "test: running all tests, on a real Postgres"
	@$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	@echo "lint: checking ruff's rules, the format, and the arrows between modules"
	@$(BIN)/python -m ruff check --quiet
	@$(BIN)/python -m ruff format --check --quiet
	@$(BIN)/lint-imports --no-logo

types: $(READY)
	@echo "types: running mypy --strict over every source root, and pyright over tests/typing"
	@$(BIN)/python -m mypy
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

bench: $(READY)
	@echo "bench: comparing this project with langgraph; writes benchmarks/out/latest.json"
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-against: $(READY)
	@[ -n "$(REF)" ] || { echo "bench-against: REF is missing; run make bench-against REF=main" >&2; exit 2; }
	@echo "bench-against: comparing this tree with $(REF)"
	@$(BIN)/python benchmarks/against.py "$(REF)" $(ARGS)

docs: $(READY)
	@echo "docs: checking links and Python code blocks"
	@$(BIN)/python docs/check.py

faults-short: $(READY)
	@echo "faults-short: killing runs at every named point, in every durability"
	@$(BIN)/python -m pytest tests/faults -s

sweep: $(READY)
	@echo "sweep: comparing the engine with its models in many long histories"
	@$(BIN)/python -m pytest tests/unit/pregel/test_machine.py tests/unit/pregel/test_model.py \
	  tests/unit/pregel/test_programs.py --hypothesis-profile sweep --timeout 7200 $(ARGS)

clean:
	@echo "clean: removing $(VENV) and everything else that can be made again"
	@rm -rf $(VENV) dist benchmarks/out .bench .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
