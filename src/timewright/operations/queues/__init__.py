"""Queues: entries, leases, policies and named limits."""
