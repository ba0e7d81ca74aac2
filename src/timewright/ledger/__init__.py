"""The ledger: each function records one decision in one transaction."""
