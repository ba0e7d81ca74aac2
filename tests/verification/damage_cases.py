"""Damage to a store, by the invariant that it violates."""

from __future__ import annotations

from tests.verification.damage import OTHERS, again, run_of

HOUR = 3_600_000_000
MINUTE = 60_000_000
TICK = 1

LATE_MAIL = (
    "SELECT a.run_id FROM attempts a JOIN runs r ON r.id = a.run_id"
    " WHERE r.queue = 'mail' AND a.fence = 1 ORDER BY a.leased_at DESC, a.run_id DESC LIMIT 1"
)
RETRIED = run_of("failing", "failed")
EXCLUDED = run_of("office", "skipped", reason="excluded")
MISSED = run_of("none", "skipped", reason="missed")
PAUSED = run_of("paused", "skipped", reason="paused", oldest=True)
UNKNOWN = run_of("careful", "parked")
API = (
    "SELECT id FROM runs WHERE ready_bucket LIKE '%limit:default/api' AND state = 'succeeded'"
    " ORDER BY id DESC LIMIT 2"
)
UNHINTED = (
    '{"interval": {"interval": "PT60S", "expires_at": "2026-03-30T00:00:00Z", "reason": "", "actor": ""}}'
)

# The violated invariant, part of its message, and the damage.
DAMAGE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "an occurrence twice": (
        "I1",
        "more than one row",
        (
            "DROP INDEX runs_occurrence",
            (
                f"INSERT INTO runs (id, {OTHERS}) SELECT id || 'x', {OTHERS} FROM runs"
                f" WHERE id = ({run_of('minutely')})"
            ),
        ),
    ),
    "an instant that nobody planned": (
        "I2",
        "is not in the plan",
        (f"UPDATE runs SET planned_at = planned_at + 1000000 WHERE id = ({run_of('minutely')})",),
    ),
    "a closed instant that ran": (
        "I2",
        "closed by a calendar",
        (f"UPDATE runs SET state = 'cancelled' WHERE id = ({EXCLUDED})",),
    ),
    "a hole in the plan": (
        "I3",
        "nothing is recorded",
        (f"DELETE FROM runs WHERE id = ({run_of('minutely', nth=3)})",),
    ),
    "an end that nobody followed": (
        "I41",
        "no run followed",
        (f"DELETE FROM runs WHERE id = ({run_of('follower', nth=3)})",),
    ),
    "a budget that forgot what was taken": (
        "I42",
        "but its charges sum to",
        ("UPDATE budget_accounts SET used = 0 WHERE budget = 'default/day'",),
    ),
    "a charge of a lease that never was": (
        "I42",
        "which was never leased",
        ("UPDATE budget_charges SET fence = 99 WHERE budget = 'default/day'",),
    ),
    "a lease that no budget was charged for": (
        "I44",
        "was leased but not charged to day",
        ("DELETE FROM budget_charges WHERE budget = 'default/day'",),
    ),
    "a gap that counts too few": (
        "I4",
        "counts 3",
        ("UPDATE runs SET dropped = dropped - 1 WHERE last_of IS NOT NULL",),
    ),
    "a gap over a row": (
        "I4",
        "its own row",
        ("UPDATE runs SET last_of = last_of + 2000000 WHERE last_of IS NOT NULL",),
    ),
    "an occurrence admitted early": (
        "I5",
        "admitted at",
        (f"UPDATE runs SET created_at = planned_at - 1 WHERE id = ({run_of('minutely')})",),
    ),
    "a lease before the jitter": (
        "I5",
        "before jitter allows",
        (
            (
                "UPDATE attempts SET leased_at = (SELECT planned_at FROM runs WHERE id = run_id)"
                f" WHERE run_id = ({run_of('berlin')})"
            ),
        ),
    ),
    "a run without its schedule": (
        "I6",
        "a schedule that does not exist",
        (f"UPDATE runs SET schedule_id = 'sch_nobody' WHERE id = ({run_of('minutely')})",),
    ),
    "a skip without a reason": (
        "I6",
        "without a reason",
        (f"UPDATE runs SET reason = '' WHERE id = ({MISSED})",),
    ),
    "a cursor that passed an instant": (
        "I7",
        "without a decision",
        (f"UPDATE schedules SET cursor_at = cursor_at + {3 * MINUTE} WHERE name = 'minutely'",),
    ),
    "a cursor before a decision": (
        "I7",
        "its cursor is before it",
        (f"UPDATE schedules SET cursor_at = cursor_at - {10 * MINUTE} WHERE name = 'minutely'",),
    ),
    "a cursor that went back": (
        "I8",
        "its cursor fell",
        (f"UPDATE schedules SET cursor_at = cursor_at - {10 * MINUTE} WHERE name = 'minutely'",),
    ),
    "a success that was a failure": (
        "I9",
        "is succeeded after failed",
        (f"UPDATE runs SET state = 'succeeded' WHERE id = ({RETRIED})",),
    ),
    "a fence that fell": (
        "I10",
        "its fence fell",
        (f"UPDATE runs SET fence = fence - 1 WHERE id = ({RETRIED})",),
    ),
    "a lease that left no row": (
        "I10",
        "are recorded",
        (f"DELETE FROM attempts WHERE fence = 2 AND run_id = ({RETRIED})",),
    ),
    "an answer from a lost lease": (
        "I11",
        "before the last ended",
        (f"UPDATE attempts SET ended_at = ended_at + {HOUR} WHERE fence = 1 AND run_id = ({RETRIED})",),
    ),
    "a lease after the end": (
        "I12",
        "was leased again",
        again(run_of("minutely"), fence=2, later=MINUTE),
    ),
    "two ends": ("I13", "ended 2 times", again(run_of("minutely"), fence=2, later=MINUTE)),
    "two live leases under a ceiling of one": (
        "I14",
        "2 live leases",
        (
            "DROP INDEX runs_one_in_flight",
            (
                "UPDATE runs SET state = 'leased', fence = fence + 1, holder = 'thief',"
                " lease_until = finished_at + 1,"
                " leased_at = (SELECT max(finished_at) FROM runs)"
                f" WHERE id IN (SELECT id FROM ({API}) AS two)"
            ),
        ),
    ),
    "a run under the key of another": (
        "I61",
        "but its schedule.name is spaced",
        ("UPDATE runs SET ready_bucket = replace(ready_bucket, '#spaced', '#other')",),
    ),
    "a start over a rate": (
        "I60",
        "is over the rate 1/m",
        again(run_of("spaced"), fence=2, later=MINUTE // 2),
    ),
    "a hold without a lease": ("I15", "not a live lease", ("UPDATE limit_holds SET fence = fence + 1",)),
    "a lease without a hold": ("I15", "does not hold it", ("DELETE FROM limit_holds",)),
    "a lease that was taken early": (
        "I16",
        "but lasted until",
        ("UPDATE attempts SET lease_until = ended_at + 1 WHERE outcome = 'lost'",),
    ),
    "a lease for a day": (
        "I17",
        "beyond its lease length",
        (f"UPDATE attempts SET lease_until = ended_at + {24 * HOUR} WHERE run_id = ({run_of('minutely')})",),
    ),
    "a loss that cost nothing": (
        "I18",
        "was not charged",
        ("UPDATE attempts SET charged = 0 WHERE outcome = 'lost'",),
    ),
    "an attempt that was forgotten": (
        "I18",
        "attempts, but",
        (f"UPDATE runs SET attempts = attempts - 1 WHERE id = ({RETRIED})",),
    ),
    "a run that is tried for ever": (
        "I19",
        "but is ready",
        (f"UPDATE runs SET state = 'ready', finished_at = NULL WHERE id = ({RETRIED})",),
    ),
    "an unknown outcome that is called a failure": (
        "I19",
        "instead of parked",
        (f"UPDATE runs SET state = 'failed' WHERE id = ({UNKNOWN})",),
    ),
    "a retry without a wait": (
        "I20",
        "before its backoff",
        (
            (
                "UPDATE attempts SET leased_at = (SELECT a.ended_at FROM attempts a"
                " WHERE a.run_id = attempts.run_id AND a.fence = 1)"
                f" WHERE fence = 2 AND run_id = ({RETRIED})"
            ),
        ),
    ),
    "two in flight": (
        "I21",
        "while another was in flight",
        (
            (
                f"UPDATE attempts SET ended_at = ended_at + {20 * MINUTE}"
                f" WHERE run_id = ({run_of('slow', oldest=True)})"
            ),
        ),
    ),
    "a missed one that ran": (
        "I22",
        "catch_up is none",
        (f"UPDATE runs SET state = 'cancelled' WHERE id = ({MISSED})",),
    ),
    "a missed occurrence recorded as paused": (
        "I23",
        "lies in no pause",
        (f"UPDATE runs SET reason = 'paused' WHERE id = ({MISSED})",),
    ),
    "a run inside a pause": (
        "I23",
        "lies in a pause",
        (f"UPDATE runs SET state = 'cancelled' WHERE id = ({PAUSED})",),
    ),
    "a decision nearer than its clamp": (
        "I24",
        "closer than its clamp",
        (f"UPDATE runs SET planned_at = planned_at - {13 * MINUTE // 2} WHERE id = ({run_of('clamped')})",),
    ),
    "a hint without an actor": (
        "I25",
        "no actor",
        (f"UPDATE schedules SET hints = '{UNHINTED}' WHERE name = 'hinted'",),
    ),
    "a hint where none are taken": (
        "I25",
        "accepts none",
        (f"UPDATE runs SET source = 'ai-interval' WHERE id = ({run_of('minutely')})",),
    ),
    "at most once, twice": (
        "I26",
        "was leased 2 times",
        again(UNKNOWN, fence=2, later=MINUTE),
    ),
    "a schedule that is passed over": (
        "I27",
        "has waited since",
        (f"UPDATE schedules SET wake_at = wake_at - {HOUR} WHERE name = 'minutely'",),
    ),
    "a lease that nobody takes back": (
        "I27",
        "not reclaimed",
        (f"UPDATE runs SET lease_until = lease_until - {HOUR} WHERE state = 'leased'",),
    ),
    "one that waits for ever": (
        "I28",
        "waited longest",
        (
            (
                f"UPDATE runs SET planned_at = planned_at - {HOUR}, fire_at = planned_at - {HOUR}"
                f" WHERE id = ({LATE_MAIL})"
            ),
        ),
    ),
    "a run that is lost": (
        "I31",
        "pruning had not reached it",
        (f"DELETE FROM runs WHERE id = ({run_of('minutely', nth=3)})",),
    ),
    "a limit of another run": (
        "I32",
        "is counted by limit:other/api",
        (f"UPDATE runs SET ready_bucket = '\n\nlimit:other/api' WHERE id = ({run_of('limited')})",),
    ),
    "an instance that serves other queues": (
        "I46",
        "without no queue",
        ("UPDATE objects SET body = '{\"queues\":[\"mail\"]}' WHERE kind = 'offer'",),
    ),
    "a schedule that is decided 40 days ahead": (
        "I49",
        "which the clock has not reached",
        ("UPDATE schedules SET cursor_at = cursor_at + 3456000000000 WHERE name = 'minutely'",),
    ),
    "a lease under a pause": (
        "I54",
        "installation was paused at",
        (
            (
                "INSERT INTO pauses (id, scope, due, actor, origin, at)"
                " SELECT 'pause_1', 'installation', 'wait', 'ada', 'human', min(at) FROM audit"
            ),
        ),
    ),
    "a success that is called quiet": (
        "I56",
        "used an attempt",
        (
            (
                "UPDATE runs SET state = 'skipped', reason = 'quiet', attempts = 1"
                f" WHERE id = ({run_of('minutely')})"
            ),
        ),
    ),
    "a step that starts before what it needs": (
        "I58",
        "before check had ended",
        (f"UPDATE runs SET finished_at = finished_at + {HOUR} WHERE dedupe_scope LIKE '%/check'",),
    ),
    "an incident that is open twice": (
        "I48",
        "was opened again",
        (
            (
                "INSERT INTO incidents (id, namespace, kind, subject, opened_at, closed_at, body)"
                " VALUES ('inc_1', 'default', 'failed', 'x', 1, 9, '{}'),"
                " ('inc_2', 'default', 'failed', 'x', 5, NULL, '{}')"
            ),
        ),
    ),
    "a token that changed another schedule": (
        "I65",
        "changed sch_other",
        ("UPDATE audit SET subject = 'sch_other' WHERE origin = 'run'",),
    ),
    "a token that was used after its run": (
        "I65",
        "while it was not leased",
        (f"UPDATE audit SET at = at + {9 * HOUR} WHERE origin = 'run'",),
    ),
    "progress of no attempt": ("I66", "of no attempt", ("UPDATE run_progress SET fence = fence + 1",)),
    "progress after its attempt": (
        "I66",
        "was not running",
        (f"UPDATE run_progress SET at = at + {9 * HOUR}",),
    ),
    "a client key with another run": (
        "I39",
        "of another schedule",
        (f"UPDATE meta SET value = ({run_of('minutely')}) WHERE name LIKE 'client:%'",),
    ),
    "a next time that will not be": (
        "I40",
        "its plan has",
        (f"UPDATE schedules SET next_at = next_at + {MINUTE} WHERE name = 'minutely'",),
    ),
    "an active schedule without a next time": (
        "I40",
        "has no next time",
        ("UPDATE schedules SET next_at = NULL, wake_at = NULL WHERE name = 'minutely'",),
    ),
    "a wake-up that is lost": (
        "I40",
        "is not woken",
        ("UPDATE schedules SET wake_at = NULL WHERE name = 'minutely'",),
    ),
    "a cancelled run that nobody cancelled": (
        "I9",
        "nobody cancelled it",
        (f"UPDATE runs SET state = 'cancelled' WHERE id = ({RETRIED})",),
    ),
    "a missed occurrence that failed": (
        "I9",
        "failed because of missed",
        (f"UPDATE runs SET state = 'failed' WHERE id = ({MISSED})",),
    ),
    "a run by hand that is lost": (
        "I31",
        "was started by hand and is missing",
        (
            (
                "DELETE FROM runs WHERE id = (SELECT min(after) FROM audit"
                " WHERE action = 'schedule.run' AND after LIKE 'run_%')"
            ),
        ),
    ),
}
