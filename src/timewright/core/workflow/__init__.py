"""Workflows (DAGs): definition, validation, conditions, step input and progress."""

from __future__ import annotations

from timewright.core.workflow.checks import decode_workflow, validate
from timewright.core.workflow.progress import (
    SkippedStep,
    StepChanges,
    WorkflowProgress,
    WorkflowStatus,
    ready_steps,
    render_graph,
    skip_reason,
    workflow_status,
)
from timewright.core.workflow.spec import (
    MAX_EDGES,
    MAX_STEPS,
    Each,
    RunIf,
    Step,
    WorkflowSpec,
    layers,
    successors,
)
from timewright.core.workflow.step_input import add_input, each_items, resolve_input

__all__ = [
    "MAX_EDGES",
    "MAX_STEPS",
    "Each",
    "RunIf",
    "SkippedStep",
    "Step",
    "StepChanges",
    "WorkflowProgress",
    "WorkflowSpec",
    "WorkflowStatus",
    "add_input",
    "decode_workflow",
    "each_items",
    "layers",
    "ready_steps",
    "render_graph",
    "resolve_input",
    "skip_reason",
    "successors",
    "validate",
    "workflow_status",
]
