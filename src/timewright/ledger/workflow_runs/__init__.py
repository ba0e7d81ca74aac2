"""Workflow runs: launch, steps, retry, and control by hand."""
