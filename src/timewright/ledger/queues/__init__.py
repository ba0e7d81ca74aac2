"""Queues: policies, the policy file, and the import of entries."""
