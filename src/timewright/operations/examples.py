"""The runs that examples speak of; whoever tries an example puts runs with these ids in place first."""

from __future__ import annotations

LEASED_RUN = "run_01KKBXWX00EXAMPLE0LEASED00"
FAILED_RUN = "run_01KKBXWX00EXAMPLE0FAILED00"
PARKED_RUN = "run_01KKBXWX00EXAMPLE0PARKED00"
LEASE = "lease_01KKBXWX00EXAMPLE000000000-1"
