# The commands of dev.py, for those who type make. Arguments go in ARGS: make test ARGS="-k cron".

PYTHON ?= python3
ARGS ?=
COMMANDS := up test pythons check bench docs screens simulate faults soak package lock

.DEFAULT_GOAL := help
.PHONY: help $(COMMANDS)

help:  ## This list.
	@$(PYTHON) dev.py

$(COMMANDS):
	@$(PYTHON) dev.py $@ $(ARGS)
