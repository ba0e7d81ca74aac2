"""Runs. The loop around the ledger: settle, reclaim, admit, lease, launch, rest."""
