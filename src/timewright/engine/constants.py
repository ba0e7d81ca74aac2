"""The tuning constants of the engine: each with its unit and its reason."""

from __future__ import annotations

from datetime import timedelta

# How often expired leases, held runs, orphaned schedules, cancels and new output are looked for.
CHECK_INTERVAL = timedelta(seconds=1)
# Something that another process holds, or that is about to end, is checked again after this time.
RECHECK_DELAY_S = 0.05
# The pauses after the first, second, … error of the store in a row.
ERROR_BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0)
# This number of errors in a row, after 0.6 s, is an outage of the store and logged; fewer are not.
OUTAGE_ERRORS = 3
# A schedule that is overdue by this much was not decided by its instance: then every instance decides it.
# Well below the default grace, within which an occurrence counts as late and not as missed.
ORPHAN_AFTER = timedelta(seconds=10)
# Renewed three times per term.
LEADER_TERM = timedelta(seconds=15)
# A lease is renewed six times per length, but not more often than this.
MIN_RENEW_INTERVAL_S = 0.15
# Stop work this long before its lease expires, or a sixth of the lease: attempts must never overlap.
FENCE_MARGIN_S = 1.0
# A target stops its work itself, at its time limit and after a stop within the grace. After this much longer
# the launcher gives up on it, unless it runs a function that cannot be killed.
GIVE_UP_MARGIN_S = 5.0
# Work that should have ended gets this much longer, and as long again after a look that comes this much too
# late: the process was suspended before it, and the work too. Else the next attempt would start beside it.
LATE_LOOK_S = 1.0
# Prefetch as many runs as end in this time, and at most this many.
PREFETCH_S = 0.2
MAX_PREFETCHED_RUNS = 2000
# Fewer ended runs are no measurement; with a lower capacity than this, nothing is prefetched.
MIN_SAMPLES = 32
# Results are written in one transaction when this many have arrived, or this long after the first: one
# commit costs more than one result.
SETTLE_BATCH_RESULTS = 500
SETTLE_WAIT_S = 0.004
# Schedules that are preloaded before a sleep, and outputs of ended attempts that are kept until written.
MAX_BUFFERED_ROWS = 10_000
MAX_QUEUED_FACTS = 50_000
HEARTBEAT_INTERVAL_S = 15.0
# How often the processes of other instances are looked at; one that has ended is replaced at once.
DEAD_HOLDER_INTERVAL_S = 5.0
# A process that lost its sessions on the database server, and lives, reconnects within this time.
SESSION_RECHECK_S = 4.0
RECLAIM_BATCH_RUNS = 1000
# Rows of values of a limit's key that were not used for this long are removed; looked for as often.
LIMIT_KEY_IDLE = timedelta(hours=1)
PRUNE_INTERVAL = timedelta(minutes=1)
# Answers to idempotency keys count for a day, and are stored under the six hours in which they were made.
KEEP_ANSWERS = timedelta(hours=30)
# Between two batches of one prune, so that ticks and other writers have their turn.
PRUNE_PAUSE = timedelta(milliseconds=100)
# What stopping work has before its run is released, and how long the last tick may take.
DEFAULT_STOP_GRACE = timedelta(seconds=5)
MAX_LAST_TICK_S = 3.0
