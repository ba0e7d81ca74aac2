"""Explanations of occurrences and runs: what happened or will happen, why, and what would change it."""
