"""Definitions in files: schedules, queues, limits, calendars and workflows as YAML that lives in git."""

from timewright.core.definitions.file import (
    SECTIONS,
    Definition,
    DefinitionFile,
    Kind,
    read_definitions,
    write_definitions,
)

__all__ = ["SECTIONS", "Definition", "DefinitionFile", "Kind", "read_definitions", "write_definitions"]
