"""Budgets and provider windows: definitions, charges, and owners of runs."""
