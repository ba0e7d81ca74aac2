-- The whole schema. Until 0.1 is tagged a schema change edits this file, and a store made from an earlier
-- form of it is refused. All instants are microseconds since 1970 in UTC.
-- Small tables whose rows are rewritten often are vacuumed after some hundred changes, large ones after a hundredth
-- of their rows; by the server's default they would wait for a fifth.

-- One narrow row per schedule: its progress, which changes often. Its definition is in `revisions`.
CREATE TABLE schedules (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    group_name TEXT COLLATE "C" NOT NULL DEFAULT '',
    revision BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    cursor_at BIGINT NOT NULL,
    next_at BIGINT,
    wake_at BIGINT,
    source TEXT COLLATE "C" NOT NULL DEFAULT '',
    trail TEXT COLLATE "C" NOT NULL DEFAULT '',
    failures BIGINT NOT NULL DEFAULT 0,
    runs BIGINT NOT NULL DEFAULT 0,
    missed BIGINT NOT NULL DEFAULT 0,
    paused_at BIGINT,
    paused_until BIGINT,
    last_started_at BIGINT,
    last_finished_at BIGINT,
    failing_since BIGINT,
    replaced_after BIGINT,
    hints TEXT COLLATE "C" NOT NULL DEFAULT '',
    last_run TEXT COLLATE "C" NOT NULL DEFAULT '',
    shard BIGINT NOT NULL DEFAULT 0,
    waits_for TEXT COLLATE "C" NOT NULL DEFAULT '',
    watched BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);

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
    schedule_id TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (schedule_id, revision)
);

-- One row per occurrence, also for skipped ones, and one per queue entry. Ids sort by time.
CREATE TABLE runs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    dedupe_scope TEXT COLLATE "C" NOT NULL DEFAULT '',
    planned_at BIGINT NOT NULL,
    fire_at BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    deferred BIGINT NOT NULL DEFAULT 0,
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    source TEXT COLLATE "C" NOT NULL DEFAULT '',
    revision BIGINT NOT NULL DEFAULT 0,
    queue TEXT COLLATE "C" NOT NULL DEFAULT '',
    ready_bucket TEXT COLLATE "C" NOT NULL DEFAULT '',
    priority BIGINT NOT NULL DEFAULT 100,
    exclusive BIGINT NOT NULL DEFAULT 1,
    handoff BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    refunds BIGINT NOT NULL DEFAULT 0,
    losses BIGINT NOT NULL DEFAULT 0,
    deferred_since BIGINT,
    fence BIGINT NOT NULL DEFAULT 0,
    last_of BIGINT,
    dropped BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    lease_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    holder TEXT COLLATE "C" NOT NULL DEFAULT '',
    leased_at BIGINT,
    lease_until BIGINT,
    cancel_at BIGINT,
    outcome_label TEXT COLLATE "C" NOT NULL DEFAULT '',
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    parent TEXT COLLATE "C" NOT NULL DEFAULT '',
    previous TEXT COLLATE "C" NOT NULL DEFAULT '',
    extra TEXT COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);

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
    namespace TEXT COLLATE "C" NOT NULL,
    planned_minute BIGINT NOT NULL,
    finished_minute BIGINT NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    parked BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    missed BIGINT NOT NULL,
    started BIGINT NOT NULL,
    delay_max BIGINT NOT NULL,
    delays TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, planned_minute, finished_minute)
);

CREATE INDEX run_counts_finished ON run_counts (finished_minute);

-- Minutes that are counted again, because a run that had ended in them was reopened or changed.
CREATE TABLE run_recounts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    finished_minute BIGINT NOT NULL
);

-- Every ready bucket that a run was ever in. Ids ascend in the order of commits, so a reader sees what is new.
CREATE TABLE ready_buckets (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bucket TEXT COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX ready_buckets_bucket ON ready_buckets (bucket);

-- One row per ended lease.
CREATE TABLE attempts (
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    number BIGINT NOT NULL,
    lease_id TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    leased_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    charged BIGINT NOT NULL,
    outcome_label TEXT COLLATE "C" NOT NULL DEFAULT '',
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    result TEXT COLLATE "C" NOT NULL DEFAULT '',
    cost TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, fence)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.01);

-- What an external executor calls the run that it started for an attempt.
CREATE TABLE external_ids (
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    external_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, fence)
);
CREATE INDEX external_ids_by_id ON external_ids (external_id);

-- The files that attempts have written, each with the attempt that refers to it.
CREATE TABLE artifacts (
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    media_type TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, fence, name)
);

-- The output of a running attempt: its head and tail, overwritten about once a second.
CREATE TABLE attempt_output (
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    size BIGINT NOT NULL,
    tail_offset BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, fence)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What the newest attempt of a run reported about its work, overwritten about once a second. The checkpoint is JSON and
-- is given to the next attempt.
CREATE TABLE run_progress (
    run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    at BIGINT NOT NULL,
    fraction DOUBLE PRECISION,
    note TEXT COLLATE "C" NOT NULL,
    checkpoint TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Limits: how many leases each admits at a time, how quickly they may start, and the leases that count against it. A
-- limit with a key has one row per value of the key, made from the row of the limit itself. `rate_interval` is the time
-- between starts (0: no rate), `arrival_at` when the next start is due at that rate; `burst` starts may come early.
-- `share_used` counts the starts of a key divided by its weight: the key with the least is next.
CREATE TABLE limits (
    limit_key TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    capacity BIGINT NOT NULL,
    rate_interval BIGINT NOT NULL DEFAULT 0,
    burst BIGINT NOT NULL DEFAULT 1,
    arrival_at BIGINT NOT NULL DEFAULT 0,
    weight BIGINT NOT NULL DEFAULT 1,
    share_used BIGINT NOT NULL DEFAULT 0,
    used_at BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE limit_holds (
    limit_key TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    PRIMARY KEY (limit_key, run_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE INDEX limit_holds_run ON limit_holds (run_id);

-- Ready runs that share their needs and limits, under a limit with a key or a rate, wait in a group. Groups are many and
-- come and go, so instances keep no list of them: they read the open groups of a base, which is the part of the ready
-- bucket without the keys. `waits_for` is empty if runs may start, a limit key that is full, `rate` (until `open_at`),
-- or `-` if no run waits (since `open_at`).
CREATE TABLE limit_groups (
    bucket TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    base TEXT COLLATE "C" NOT NULL,
    share_limit TEXT COLLATE "C" NOT NULL,
    handoff BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    share_used BIGINT NOT NULL DEFAULT 0,
    waits_for TEXT COLLATE "C" NOT NULL DEFAULT '',
    open_at BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE INDEX limit_groups_open ON limit_groups (handoff, base, priority, share_used) WHERE waits_for = '';
CREATE INDEX limit_groups_rate ON limit_groups (handoff, base, open_at) WHERE waits_for = 'rate';
CREATE INDEX limit_groups_waiting ON limit_groups (waits_for) WHERE waits_for <> '';
CREATE INDEX limit_groups_share ON limit_groups (share_limit, share_used);

-- Open the group of a run that becomes ready. The shared lock keeps a leasing transaction, which does not see this run
-- yet, from closing the group as empty; it conflicts with no other insert. A group that returns starts at most one
-- start (1000000) behind the key that has the largest share.
CREATE FUNCTION open_limit_group() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of_share TEXT := split_part(split_part(new.ready_bucket, E'\n~', 2), '#', 1);
    at_least BIGINT;
BEGIN
    PERFORM 1 FROM limit_groups WHERE bucket = new.ready_bucket AND waits_for <> '-' AND priority <= new.priority
        FOR KEY SHARE;
    IF NOT FOUND THEN
        at_least := COALESCE((SELECT max(share_used) FROM limit_groups WHERE share_limit = of_share), 0) - 1000000;
        INSERT INTO limit_groups AS g (bucket, base, share_limit, handoff, priority, share_used)
        VALUES (new.ready_bucket, split_part(new.ready_bucket, E'\n~', 1), of_share, new.handoff, new.priority,
            greatest(at_least, 0))
        ON CONFLICT (bucket) DO UPDATE SET
            priority = CASE WHEN g.waits_for = '-' THEN excluded.priority
                ELSE least(g.priority, excluded.priority) END,
            share_used = CASE WHEN g.waits_for = '-' THEN greatest(g.share_used, excluded.share_used)
                ELSE g.share_used END,
            waits_for = CASE WHEN g.waits_for = '-' THEN '' ELSE g.waits_for END;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER runs_limit_group_insert AFTER INSERT ON runs FOR EACH ROW
    WHEN (new.ready_bucket >= '~' AND new.state = 'ready' AND new.deferred = 0) EXECUTE FUNCTION open_limit_group();
CREATE TRIGGER runs_limit_group_update AFTER UPDATE OF state, deferred ON runs FOR EACH ROW
    WHEN (new.ready_bucket >= '~' AND new.state = 'ready' AND new.deferred = 0) EXECUTE FUNCTION open_limit_group();

-- The use of each budget in each period, and the expected use of the runs under way.
CREATE TABLE budget_accounts (
    budget TEXT COLLATE "C" NOT NULL,
    period BIGINT NOT NULL,
    used BIGINT NOT NULL DEFAULT 0,
    held BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (budget, period)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What each lease took from each budget; while `open` is 1 the actual use is not known yet.
CREATE TABLE budget_charges (
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    budget TEXT COLLATE "C" NOT NULL,
    period BIGINT NOT NULL,
    at BIGINT NOT NULL,
    used BIGINT NOT NULL DEFAULT 0,
    held BIGINT NOT NULL DEFAULT 0,
    open BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, fence, budget)
);

CREATE INDEX budget_charges_budget ON budget_charges (budget, at);

-- Counters per workflow step; the row with an empty step counts for the workflow run as a whole. A step gets its
-- row when it starts or when something it needs is settled.
CREATE TABLE workflow_steps (
    parent TEXT COLLATE "C" NOT NULL,
    step TEXT COLLATE "C" NOT NULL,
    met BIGINT NOT NULL DEFAULT 0,
    live BIGINT NOT NULL DEFAULT 0,
    parked BIGINT NOT NULL DEFAULT 0,
    failed BIGINT NOT NULL DEFAULT 0,
    cancelled BIGINT NOT NULL DEFAULT 0,
    round BIGINT NOT NULL DEFAULT 0,
    state TEXT COLLATE "C" NOT NULL DEFAULT '',
    run_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (parent, step)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Which schedule follows or needs which other, and when that other last ended so. `kind` is after or needs.
CREATE TABLE schedule_links (
    upstream TEXT COLLATE "C" NOT NULL,
    downstream TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    delay BIGINT NOT NULL DEFAULT 0,
    met_at BIGINT,
    met_by TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (upstream, downstream, kind, outcome)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE INDEX schedule_links_downstream ON schedule_links (downstream);

-- One row per ended run and schedule that follows it, with the run it led to once that is decided.
CREATE TABLE follow_ups (
    downstream TEXT COLLATE "C" NOT NULL,
    upstream_run TEXT COLLATE "C" NOT NULL,
    upstream TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    due_at BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL DEFAULT 'open',
    run_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (downstream, upstream_run)
);

CREATE INDEX follow_ups_open ON follow_ups (downstream, due_at) WHERE state = 'open';
CREATE INDEX follow_ups_run ON follow_ups (run_id) WHERE run_id <> '';
CREATE INDEX follow_ups_upstream ON follow_ups (upstream_run);

-- Runs that are deferred until a schedule they need has ended.
CREATE TABLE dependency_waits (
    run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    schedule_id TEXT COLLATE "C" NOT NULL
);

CREATE INDEX dependency_waits_schedule ON dependency_waits (schedule_id);

-- Small named objects with a revision: queue policies, limits, calendars, workflows.
CREATE TABLE objects (
    kind TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Findings that are kept: opened once, told, closed once. At most one per key is open.
CREATE TABLE incidents (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    opened_at BIGINT NOT NULL,
    closed_at BIGINT,
    body TEXT COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX incidents_open ON incidents (namespace, kind, subject) WHERE closed_at IS NULL;
CREATE INDEX incidents_closed ON incidents (closed_at) WHERE closed_at IS NOT NULL;

-- Who changed what. Append-only. Writers wait for no other writer, so numbers may be left out.
CREATE TABLE audit (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    origin TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    before TEXT COLLATE "C" NOT NULL DEFAULT '',
    after TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason TEXT COLLATE "C" NOT NULL DEFAULT ''
);

-- The hash chain over the audit log, extended in the background: each hash covers one entry and the hash before it.
CREATE TABLE audit_seals (
    position BIGINT NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL,
    hash TEXT COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX audit_seals_seq ON audit_seals (seq);

-- Hints, pauses, skips, moves, edits and streaks of failures of schedules. Append-only: the end of one is another row.
CREATE TABLE adjustments (
    schedule_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    cursor_at BIGINT NOT NULL,
    until BIGINT,
    planned_at BIGINT,
    moved_to BIGINT,
    hinted_interval BIGINT,
    actor TEXT COLLATE "C" NOT NULL,
    origin TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (schedule_id, seq)
);

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
    at BIGINT NOT NULL,
    until BIGINT,
    ended_at BIGINT,
    ended_by TEXT NOT NULL DEFAULT ''
);

CREATE INDEX pauses_by_end ON pauses (ended_at);

-- Single values about the store itself.
CREATE TABLE meta (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
