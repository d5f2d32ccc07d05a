# Every target installs what it needs into .venv, from locked and hashed requirements.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
  command -v $(name) >/dev/null && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  2>/dev/null && command -v $(name))) python3)
INVENTORY ?= inventories/local
HOSTS ?= 3
VENV := .venv
BIN := $(VENV)/bin
# Find-links of pip are not read by uv by itself.
UV := $(if $(PIP_FIND_LINKS),UV_FIND_LINKS="$(PIP_FIND_LINKS)" ,)$(BIN)/uv
LOCKED := $(UV) pip install --quiet --python $(BIN)/python --require-hashes$(if $(PIP_NO_INDEX), --no-index)
# uv leaves compiling to the first import, and where Python may not write bytecode, as images often
# say (PYTHONDONTWRITEBYTECODE), every process of a run would compile Ansible anew. The controller
# imports next to nothing of the collections, which are three files of four.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x /ansible_collections/ $(BIN)/../lib src *_plugins
SOURCES := $(shell find src *_plugins -name '*.py')

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/uv: requirements/uv.txt tools/preflight.py
	@$(PYTHON) tools/preflight.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/controller: $(VENV)/uv requirements/controller.txt pyproject.toml
	@$(LOCKED) -r requirements/controller.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# What cannot be compiled is told, and costs time alone.
$(VENV)/compiled: $(VENV)/controller $(SOURCES)
	-@$(COMPILE)
	@touch $@

$(VENV)/dev: $(VENV)/controller requirements/dev.txt
	@$(LOCKED) -r requirements/dev.txt
	-@$(COMPILE)
	@touch $@

setup: $(VENV)/compiled ## Install the controller into .venv
dev: $(VENV)/dev $(VENV)/compiled ## Install what tests and lint need, too

up: $(VENV)/compiled ## Run site.yml to an answering endpoint (INVENTORY=inventories/local)
	@$(BIN)/ansible-playbook -i $(INVENTORY) site.yml

down: $(VENV)/compiled ## Stop everything of that inventory and leave no process
	@$(BIN)/ansible-playbook -i $(INVENTORY) playbooks/teardown.yml

status: $(VENV)/compiled ## Look at what runs
	@$(BIN)/ansible-playbook -i $(INVENTORY) playbooks/status.yml

lab: $(VENV)/compiled ## Make real hosts on this machine for inventories/lab (root; HOSTS=3)
	@$(BIN)/python -m vllm_ansible.lab up --hosts $(HOSTS)

lab-down: $(VENV)/compiled ## Remove exactly what make lab made
	@$(BIN)/python -m vllm_ansible.lab down

lint: $(VENV)/dev $(VENV)/compiled ## Check style and types, nothing skipped
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/yamllint --strict .
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/lint_ansible.py --offline

# Rows of slow tests (tests/conftest.py) come first. They wait for some of their time: three workers
# keep two cores busy. A fourth one made each test slower and the whole no quicker.
PYTEST := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest
test: $(VENV)/dev $(VENV)/compiled ## Every test that CI runs, lint among them
	@$(PYTEST) -n 3 -m "not soak" $(ARGS)

test-unit: $(VENV)/dev $(VENV)/compiled ## What runs in one process or nearly so; no play
	@$(PYTEST) -n 3 -m "not (soak or lab or vm or engine or plays)" --ignore=tests/test_lint.py $(ARGS)

test-plays: $(VENV)/dev $(VENV)/compiled ## What plays Ansible, or runs whole programs, here
	@$(PYTEST) -n 3 -m "plays and not (soak or lab or vm or engine)" --ignore=tests/test_lint.py $(ARGS)

test-lint: $(VENV)/dev $(VENV)/compiled ## Style and types, as one of the tests
	@$(PYTEST) -n 0 -m "not soak" tests/test_lint.py $(ARGS)

test-hosts: $(VENV)/dev $(VENV)/compiled ## What needs root and podman, and no engine
	@$(PYTEST) -n 2 -m "(lab or vm) and not (soak or engine)" $(ARGS)

test-engines: $(VENV)/dev $(VENV)/compiled ## What starts real engines
	@$(PYTEST) -n 2 -m "engine and not soak" $(ARGS)

# What runs Ansible: its release follows the controller's Python, 2.19 on 3.11 and 2.21 on later ones.
# What minds seconds stays with the run of everything.
RUNS_ANSIBLE := tests/test_modules.py tests/test_roles.py tests/unhappy/test_shipped_inventories.py \
  $(filter-out %/test_interrupted.py, $(wildcard tests/unit/record/test_*.py))
test-python: $(VENV)/dev $(VENV)/compiled
	@$(PYTEST) -n 0 $(RUNS_ANSIBLE) $(ARGS)

test-pythons: $(VENV)/uv ## What runs Ansible, under each further Python here of 3.11 to 3.13
	@further="$$($(BIN)/python tools/pythons.py)" && while read -r release program; do \
	  $(MAKE) --no-print-directory test-python VENV=build/python$$release PYTHON="$$program" \
	    </dev/null || exit; \
	done <<<"$$further"

soak: $(VENV)/dev $(VENV)/compiled ## Repetition and scaling; results go to docs/soak.md
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m soak $(ARGS)

lock: $(VENV)/uv ## Resolve the requirements again
	@cd requirements && ./lock

reference: $(VENV)/compiled ## Write the pages made from specs, signatures and evidence
	@$(BIN)/python tools/reference.py

.PHONY: help setup dev up down status lab lab-down lint test test-unit test-plays test-lint test-hosts test-engines test-python \
  test-pythons soak lock reference
