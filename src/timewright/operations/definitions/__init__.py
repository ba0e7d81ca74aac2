"""Definitions with an owner: what programs, files and workflows declare is written in one batch."""
