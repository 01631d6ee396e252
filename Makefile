# One thing each. What a target needs is set up first, and costs nothing when that was done before.
#
#   make test ARGS="-k recover"         arguments for pytest; bench and bench-against take some as well
#   make clean setup PYTHON=python3.12  another interpreter than the first one that will do

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
	@echo "demo: a run is killed with SIGKILL in the middle of its work, and resumed by another process"
	@$(BIN)/python examples/crash_and_resume.py

test: $(READY)
	@echo "test: the whole suite, on a real Postgres"
	@$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	@echo "lint: ruff's rules and format, and the arrows between modules"
	@$(BIN)/python -m ruff check --quiet
	@$(BIN)/python -m ruff format --check --quiet
	@$(BIN)/lint-imports --no-logo

types: $(READY)
	@echo "types: mypy --strict over every source root"
	@$(BIN)/python -m mypy

bench: $(READY)
	@echo "bench: this project and langgraph side by side; writes benchmarks/out/latest.json"
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-against: $(READY)
	@[ -n "$(REF)" ] || { echo "bench-against: against which commit? make bench-against REF=main" >&2; exit 2; }
	@echo "bench-against: this tree and $(REF) side by side"
	@$(BIN)/python benchmarks/against.py "$(REF)" $(ARGS)

docs: $(READY)
	@echo "docs: links lead somewhere, code blocks are Python"
	@$(BIN)/python docs/check.py

faults-short: $(READY)
	@echo "faults-short: the crash matrix: kills at every named point, in every durability mode"
	@$(BIN)/python -m pytest tests/faults -s

sweep: $(READY)
	@echo "sweep: the engine against its models, in many more and longer histories than the suite has"
	@$(BIN)/python -m pytest tests/unit/pregel/test_machine.py tests/unit/pregel/test_model.py \
	  tests/unit/pregel/test_programs.py --hypothesis-profile sweep --timeout 7200 $(ARGS)

clean:
	@echo "clean: removing $(VENV) and everything else that can be made again"
	@rm -rf $(VENV) dist benchmarks/out .bench .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
