"""Workflows (DAGs): definition, validation, conditions, and the input of steps."""

from __future__ import annotations

from timewright.core.workflow.checks import decode_workflow, validate
from timewright.core.workflow.spec import (
    MAX_EDGES,
    MAX_STEPS,
    Each,
    RunIf,
    Step,
    WorkflowSpec,
    layers,
    render_graph,
    skip_reason,
    successors,
)
from timewright.core.workflow.step_input import add_input, each_items, resolve_input

__all__ = [
    "MAX_EDGES",
    "MAX_STEPS",
    "Each",
    "RunIf",
    "Step",
    "WorkflowSpec",
    "add_input",
    "decode_workflow",
    "each_items",
    "layers",
    "render_graph",
    "resolve_input",
    "skip_reason",
    "successors",
    "validate",
]
