# Every target installs what it needs into .venv, from locked and hashed requirements.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
  command -v $(name) >/dev/null && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  2>/dev/null && command -v $(name))) python3)
INVENTORY ?= inventories/local
HOSTS ?= 3
BIN := .venv/bin
# Find-links of pip are not read by uv by itself.
UV := $(if $(PIP_FIND_LINKS),UV_FIND_LINKS="$(PIP_FIND_LINKS)" ,)$(BIN)/uv
LOCKED := $(UV) pip install --quiet --python $(BIN)/python --require-hashes
# uv leaves compiling to the first import, and where Python may not write bytecode, as images often
# say (PYTHONDONTWRITEBYTECODE), every process of a run would compile Ansible anew. The controller
# imports next to nothing of the collections, which are three files of four.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x /ansible_collections/ $(BIN)/../lib src *_plugins
SOURCES := $(shell find src *_plugins -name '*.py')

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.venv/uv: requirements/uv.txt tools/preflight.py
	@$(PYTHON) tools/preflight.py
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

.venv/controller: .venv/uv requirements/controller.txt pyproject.toml
	@$(LOCKED) -r requirements/controller.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# What cannot be compiled is told, and costs time alone.
.venv/compiled: .venv/controller $(SOURCES)
	-@$(COMPILE)
	@touch $@

.venv/dev: .venv/controller requirements/dev.txt
	@$(LOCKED) -r requirements/dev.txt
	-@$(COMPILE)
	@touch $@

setup: .venv/compiled ## Install the controller into .venv
dev: .venv/dev .venv/compiled ## Install what tests and lint need, too

up: .venv/compiled ## Run site.yml to an answering endpoint (INVENTORY=inventories/local)
	@$(BIN)/ansible-playbook -i $(INVENTORY) site.yml

down: .venv/compiled ## Stop everything of that inventory and leave no process
	@$(BIN)/ansible-playbook -i $(INVENTORY) playbooks/teardown.yml

status: .venv/compiled ## Look at what runs
	@$(BIN)/ansible-playbook -i $(INVENTORY) playbooks/status.yml

lab: .venv/compiled ## Make real hosts on this machine for inventories/lab (root; HOSTS=3)
	@$(BIN)/python -m vllm_ansible.lab up --hosts $(HOSTS)

lab-down: .venv/compiled ## Remove exactly what make lab made
	@$(BIN)/python -m vllm_ansible.lab down

lint: .venv/dev .venv/compiled ## Check style and types, nothing skipped
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/yamllint --strict .
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ansible-lint --offline

# As many workers as there are rows of slow tests, whose measurements mind what runs beside them.
PYTEST := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest
test: .venv/dev .venv/compiled ## Every test that CI runs, lint among them
	@$(PYTEST) -n 2 -m "not soak" $(ARGS)

test-unit: .venv/dev .venv/compiled ## What needs no host and no engine; without lint
	@$(PYTEST) -n 2 -m "not (soak or lab or vm or engine)" --ignore=tests/test_lint.py $(ARGS)

test-hosts: .venv/dev .venv/compiled ## What needs root and podman, and no engine
	@$(PYTEST) -n 2 -m "(lab or vm) and not (soak or engine)" $(ARGS)

test-engines: .venv/dev .venv/compiled ## What starts real engines
	@$(PYTEST) -n 2 -m "engine and not soak" $(ARGS)

soak: .venv/dev .venv/compiled ## Repetition and scaling; results go to docs/soak.md
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m soak $(ARGS)

lock: .venv/uv ## Resolve the requirements again
	@cd requirements && ./lock

.PHONY: help setup dev up down status lab lab-down lint test test-unit test-hosts test-engines soak lock
