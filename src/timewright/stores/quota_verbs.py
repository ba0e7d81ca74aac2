"""What a store counts for the quotas of a namespace."""

from __future__ import annotations

from timewright.stores.verbs import Verbs


class QuotaVerbs(Verbs):
    """Counts of one namespace, each taken no further than is asked."""

    def count_namespace(self, namespace: str, *, most_schedules: int, most_runs: int) -> tuple[int, int]:
        """How many schedules are in use and how many runs wait, each counted no further than its most."""
        parameters = {"namespace": namespace, "most_schedules": most_schedules, "most_runs": most_runs}
        ((schedules, waiting),) = self._ask("count_namespace", parameters)
        return int(schedules), int(waiting)
