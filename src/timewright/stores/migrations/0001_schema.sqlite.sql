-- The whole schema. Until 0.1 is tagged a schema change edits this file, and a store made from an earlier
-- form of it is refused. All instants are microseconds since 1970 in UTC.

-- One narrow row per schedule: its progress, which changes often. Its definition is in `revisions`.
CREATE TABLE schedules (
    id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    group_name TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    cursor_at INTEGER NOT NULL,
    next_at INTEGER,
    wake_at INTEGER,
    source TEXT NOT NULL DEFAULT '',
    trail TEXT NOT NULL DEFAULT '',
    failures INTEGER NOT NULL DEFAULT 0,
    runs INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0,
    paused_at INTEGER,
    paused_until INTEGER,
    last_started_at INTEGER,
    last_finished_at INTEGER,
    failing_since INTEGER,
    replaced_after INTEGER,
    hints TEXT NOT NULL DEFAULT '',
    last_run TEXT NOT NULL DEFAULT '',
    shard INTEGER NOT NULL DEFAULT 0,
    waits_for TEXT NOT NULL DEFAULT '',
    watched INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX schedules_name ON schedules (namespace, name);
CREATE INDEX schedules_wake ON schedules (wake_at, id) WHERE wake_at IS NOT NULL;
-- Few schedules are parked, inactive or failing; each of these questions is asked often.
CREATE INDEX schedules_parked ON schedules (namespace, name) WHERE state = 'parked';
CREATE INDEX schedules_inactive ON schedules (state, namespace, name) WHERE state <> 'active';
CREATE INDEX schedules_failing ON schedules (id) WHERE failures > 0;
-- Due schedules that no live instance can run: the ready bucket that their runs would have.
CREATE INDEX schedules_waiting ON schedules (waits_for) WHERE waits_for <> '';
-- Schedules with an expectation.
CREATE INDEX schedules_watched ON schedules (id) WHERE watched = 1;

-- The definition of a schedule at each revision, as JSON.
CREATE TABLE revisions (
    schedule_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (schedule_id, revision)
) STRICT, WITHOUT ROWID;

-- One row per occurrence, also for skipped ones, and one per queue entry. Ids sort by time.
CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    schedule_id TEXT NOT NULL DEFAULT '',
    dedupe_scope TEXT NOT NULL DEFAULT '',
    planned_at INTEGER NOT NULL,
    fire_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    deferred INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    source TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL DEFAULT 0,
    queue TEXT NOT NULL DEFAULT '',
    ready_bucket TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 100,
    exclusive INTEGER NOT NULL DEFAULT 1,
    handoff INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    refunds INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    deferred_since INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    last_of INTEGER,
    dropped INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    lease_id TEXT NOT NULL DEFAULT '',
    holder TEXT NOT NULL DEFAULT '',
    leased_at INTEGER,
    lease_until INTEGER,
    cancel_at INTEGER,
    outcome_label TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    parent TEXT NOT NULL DEFAULT '',
    previous TEXT NOT NULL DEFAULT '',
    extra TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- Admits each occurrence exactly once. It begins with the planned instant, so inserts go to its end. A run whose
-- dedupe scope is its own id is unique by that id and needs no entry here.
CREATE UNIQUE INDEX runs_occurrence ON runs (planned_at, schedule_id, dedupe_scope) WHERE dedupe_scope <> id;
-- One run in flight per schedule, for every overlap policy but allow.
CREATE UNIQUE INDEX runs_one_in_flight ON runs (schedule_id)
    WHERE exclusive = 1 AND schedule_id <> '' AND state IN ('ready', 'leased');
-- Runs that may be leased now; runs that share their needs and limits share a bucket.
CREATE INDEX runs_ready ON runs (handoff, ready_bucket, priority, planned_at, id)
    WHERE state = 'ready' AND deferred = 0;
CREATE INDEX runs_deferred ON runs (fire_at) WHERE state = 'ready' AND deferred = 1;
-- Runs made by hand for a future instant, by schedule.
CREATE INDEX runs_future_manual ON runs (schedule_id, fire_at, id)
    WHERE state = 'ready' AND deferred = 1 AND dedupe_scope <> '';
-- Every manual run of a schedule. Its dedupe scope is its own id, and it is not in the chain of occurrences.
CREATE INDEX runs_manual ON runs (schedule_id, id) WHERE schedule_id <> '' AND dedupe_scope = id;
CREATE INDEX runs_leased ON runs (leased_at) WHERE state = 'leased';
-- Steps that wait for an answer or an event, which is in their bucket.
CREATE INDEX runs_waiting ON runs (namespace, ready_bucket) WHERE state = 'leased' AND holder = 'wait';
CREATE INDEX runs_cancel_requested ON runs (cancel_at) WHERE state = 'leased' AND cancel_at IS NOT NULL;
CREATE INDEX runs_held ON runs (schedule_id, planned_at) WHERE state = 'held';
CREATE INDEX runs_parked ON runs (planned_at) WHERE state = 'parked';
CREATE INDEX runs_failed ON runs (id, namespace, queue, planned_at) WHERE state = 'failed';
CREATE INDEX runs_parent ON runs (parent) WHERE parent <> '';
-- The runs that ended in a range of time, to count them by minute.
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_missed ON runs (finished_at) WHERE state = 'skipped' AND reason IN ('missed', 'deadline');

-- How many runs ended in which minute, by the minute they were planned in. Counted from `runs` once a minute, in the
-- background; no settlement writes here. `delays` is JSON: an upper bound in microseconds and how many starts are below it.
CREATE TABLE run_counts (
    namespace TEXT NOT NULL,
    planned_minute INTEGER NOT NULL,
    finished_minute INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    parked INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    started INTEGER NOT NULL,
    delay_max INTEGER NOT NULL,
    delays TEXT NOT NULL,
    PRIMARY KEY (namespace, planned_minute, finished_minute)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_counts_finished ON run_counts (finished_minute);

-- Minutes that are counted again, because a run that had ended in them was reopened or changed.
CREATE TABLE run_recounts (
    id INTEGER PRIMARY KEY,
    finished_minute INTEGER NOT NULL
) STRICT;

-- Every ready bucket that a run was ever in. Ids ascend in the order of commits, so a reader sees what is new.
CREATE TABLE ready_buckets (
    id INTEGER PRIMARY KEY,
    bucket TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX ready_buckets_bucket ON ready_buckets (bucket);

-- One row per ended lease.
CREATE TABLE attempts (
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    lease_id TEXT NOT NULL,
    holder TEXT NOT NULL,
    leased_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    charged INTEGER NOT NULL,
    outcome_label TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    result TEXT NOT NULL DEFAULT '',
    cost TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, fence)
) STRICT, WITHOUT ROWID;

-- What an external executor calls the run that it started for an attempt.
CREATE TABLE external_ids (
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    external_id TEXT NOT NULL,
    PRIMARY KEY (run_id, fence)
) STRICT, WITHOUT ROWID;
CREATE INDEX external_ids_by_id ON external_ids (external_id);

-- The files that attempts have written, each with the attempt that refers to it.
CREATE TABLE artifacts (
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    digest TEXT NOT NULL,
    media_type TEXT NOT NULL,
    PRIMARY KEY (run_id, fence, name)
) STRICT, WITHOUT ROWID;

-- The output of a running attempt: its head and tail, overwritten about once a second.
CREATE TABLE attempt_output (
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    tail_offset INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, fence)
) STRICT;

-- What the newest attempt of a run reported about its work, overwritten about once a second. The checkpoint is JSON and
-- is given to the next attempt.
CREATE TABLE run_progress (
    run_id TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    fraction REAL,
    note TEXT NOT NULL,
    checkpoint TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Limits: how many leases each admits at a time, how quickly they may start, and the leases that count against it. A
-- limit with a key has one row per value of the key, made from the row of the limit itself. `rate_interval` is the time
-- between starts (0: no rate), `arrival_at` when the next start is due at that rate; `burst` starts may come early.
-- `share_used` counts the starts of a key divided by its weight: the key with the least is next.
CREATE TABLE limits (
    limit_key TEXT NOT NULL PRIMARY KEY,
    capacity INTEGER NOT NULL,
    rate_interval INTEGER NOT NULL DEFAULT 0,
    burst INTEGER NOT NULL DEFAULT 1,
    arrival_at INTEGER NOT NULL DEFAULT 0,
    weight INTEGER NOT NULL DEFAULT 1,
    share_used INTEGER NOT NULL DEFAULT 0,
    used_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE limit_holds (
    limit_key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (limit_key, run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX limit_holds_run ON limit_holds (run_id);

-- Ready runs that share their needs and limits, under a limit with a key or a rate, wait in a group. Groups are many and
-- come and go, so instances keep no list of them: they read the open groups of a base, which is the part of the ready
-- bucket without the keys. `waits_for` is empty if runs may start, a limit key that is full, `rate` (until `open_at`),
-- or `-` if no run waits (since `open_at`).
CREATE TABLE limit_groups (
    bucket TEXT NOT NULL PRIMARY KEY,
    base TEXT NOT NULL,
    share_limit TEXT NOT NULL,
    handoff INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    share_used INTEGER NOT NULL DEFAULT 0,
    waits_for TEXT NOT NULL DEFAULT '',
    open_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX limit_groups_open ON limit_groups (handoff, base, priority, share_used) WHERE waits_for = '';
CREATE INDEX limit_groups_rate ON limit_groups (handoff, base, open_at) WHERE waits_for = 'rate';
CREATE INDEX limit_groups_waiting ON limit_groups (waits_for) WHERE waits_for <> '';
CREATE INDEX limit_groups_share ON limit_groups (share_limit, share_used);

-- Open the group of a run that becomes ready. A group that returns starts at most one start (1000000) behind the key
-- that has the largest share.
CREATE TRIGGER runs_limit_group_insert AFTER INSERT ON runs
    WHEN new.ready_bucket >= '~' AND new.state = 'ready' AND new.deferred = 0
BEGIN
    INSERT INTO limit_groups (bucket, base, share_limit, handoff, priority, share_used)
    SELECT new.ready_bucket, p.base, p.share_limit, new.handoff, new.priority,
        max(0, COALESCE((SELECT max(g.share_used) FROM limit_groups g WHERE g.share_limit = p.share_limit), 0) - 1000000)
    FROM (SELECT k.base AS base, substr(k.keys, 1, instr(k.keys, '#') - 1) AS share_limit FROM (
        SELECT substr(new.ready_bucket, 1, instr(new.ready_bucket, char(10) || '~') - 1) AS base,
            substr(new.ready_bucket, instr(new.ready_bucket, char(10) || '~') + 2) AS keys) k) p
    WHERE true
    ON CONFLICT (bucket) DO UPDATE SET
        priority = CASE WHEN waits_for = '-' THEN excluded.priority ELSE min(priority, excluded.priority) END,
        share_used = CASE WHEN waits_for = '-' THEN max(share_used, excluded.share_used) ELSE share_used END,
        waits_for = CASE WHEN waits_for = '-' THEN '' ELSE waits_for END
    WHERE waits_for = '-' OR excluded.priority < priority;
END;
CREATE TRIGGER runs_limit_group_update AFTER UPDATE OF state, deferred ON runs
    WHEN new.ready_bucket >= '~' AND new.state = 'ready' AND new.deferred = 0
BEGIN
    INSERT INTO limit_groups (bucket, base, share_limit, handoff, priority, share_used)
    SELECT new.ready_bucket, p.base, p.share_limit, new.handoff, new.priority,
        max(0, COALESCE((SELECT max(g.share_used) FROM limit_groups g WHERE g.share_limit = p.share_limit), 0) - 1000000)
    FROM (SELECT k.base AS base, substr(k.keys, 1, instr(k.keys, '#') - 1) AS share_limit FROM (
        SELECT substr(new.ready_bucket, 1, instr(new.ready_bucket, char(10) || '~') - 1) AS base,
            substr(new.ready_bucket, instr(new.ready_bucket, char(10) || '~') + 2) AS keys) k) p
    WHERE true
    ON CONFLICT (bucket) DO UPDATE SET
        priority = CASE WHEN waits_for = '-' THEN excluded.priority ELSE min(priority, excluded.priority) END,
        share_used = CASE WHEN waits_for = '-' THEN max(share_used, excluded.share_used) ELSE share_used END,
        waits_for = CASE WHEN waits_for = '-' THEN '' ELSE waits_for END
    WHERE waits_for = '-' OR excluded.priority < priority;
END;

-- The use of each budget in each period, and the expected use of the runs under way.
CREATE TABLE budget_accounts (
    budget TEXT NOT NULL,
    period INTEGER NOT NULL,
    used INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (budget, period)
) STRICT, WITHOUT ROWID;

-- What each lease took from each budget; while `open` is 1 the actual use is not known yet.
CREATE TABLE budget_charges (
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    budget TEXT NOT NULL,
    period INTEGER NOT NULL,
    at INTEGER NOT NULL,
    used INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    open INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, fence, budget)
) STRICT, WITHOUT ROWID;

CREATE INDEX budget_charges_budget ON budget_charges (budget, at);

-- Counters per workflow step; the row with an empty step counts for the workflow run as a whole. A step gets its
-- row when it starts or when something it needs is settled.
CREATE TABLE workflow_steps (
    parent TEXT NOT NULL,
    step TEXT NOT NULL,
    met INTEGER NOT NULL DEFAULT 0,
    live INTEGER NOT NULL DEFAULT 0,
    parked INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    round INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT '',
    run_id TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (parent, step)
) STRICT, WITHOUT ROWID;

-- Which schedule follows or needs which other, and when that other last ended so. `kind` is after or needs.
CREATE TABLE schedule_links (
    upstream TEXT NOT NULL,
    downstream TEXT NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    delay INTEGER NOT NULL DEFAULT 0,
    met_at INTEGER,
    met_by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (upstream, downstream, kind, outcome)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_links_downstream ON schedule_links (downstream);

-- One row per ended run and schedule that follows it, with the run it led to once that is decided.
CREATE TABLE follow_ups (
    downstream TEXT NOT NULL,
    upstream_run TEXT NOT NULL,
    upstream TEXT NOT NULL,
    outcome TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'open',
    run_id TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (downstream, upstream_run)
) STRICT, WITHOUT ROWID;

CREATE INDEX follow_ups_open ON follow_ups (downstream, due_at) WHERE state = 'open';
CREATE INDEX follow_ups_run ON follow_ups (run_id) WHERE run_id <> '';
CREATE INDEX follow_ups_upstream ON follow_ups (upstream_run);

-- Runs that are deferred until a schedule they need has ended.
CREATE TABLE dependency_waits (
    run_id TEXT NOT NULL PRIMARY KEY,
    schedule_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX dependency_waits_schedule ON dependency_waits (schedule_id);

-- Small named objects with a revision: queue policies, limits, calendars, workflows.
CREATE TABLE objects (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) STRICT, WITHOUT ROWID;

-- Findings that are kept: opened once, told, closed once. At most one per key is open.
CREATE TABLE incidents (
    id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX incidents_open ON incidents (namespace, kind, subject) WHERE closed_at IS NULL;
CREATE INDEX incidents_closed ON incidents (closed_at) WHERE closed_at IS NOT NULL;

-- Who changed what. Append-only. Writers wait for no other writer, so numbers may be left out.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT NOT NULL DEFAULT '',
    after TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT ''
) STRICT;

-- The hash chain over the audit log, extended in the background: each hash covers one entry and the hash before it.
CREATE TABLE audit_seals (
    position INTEGER NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX audit_seals_seq ON audit_seals (seq);

-- Hints, pauses, skips, moves, edits and streaks of failures of schedules. Append-only: the end of one is another row.
CREATE TABLE adjustments (
    schedule_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    cursor_at INTEGER NOT NULL,
    until INTEGER,
    planned_at INTEGER,
    moved_to INTEGER,
    hinted_interval INTEGER,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (schedule_id, seq)
) STRICT, WITHOUT ROWID;

-- Pauses, append-only: what is paused, until when, what happens to what comes due, by whom and why.
CREATE TABLE pauses (
    id TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    namespace TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '',
    due TEXT NOT NULL,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    until INTEGER,
    ended_at INTEGER,
    ended_by TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE INDEX pauses_by_end ON pauses (ended_at);

-- Single values about the store itself.
CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
