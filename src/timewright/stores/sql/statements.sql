-- Every SQL statement of the stores, named, once.
--
-- `-- name: x` begins a statement. `-- name: x(a text, b bigint)` begins one that takes many rows; its text
-- refers to their columns as v.a and v.b. `[sqlite]` or `[postgres]` marks a form for one database only.
--
-- {in:ids}             matches any value of the list parameter :ids
-- {values}, {from}     the rows of the batch, as the source of an INSERT or in a FROM clause
-- {lock}, {skip_locked}  FOR UPDATE [SKIP LOCKED] on PostgreSQL, nothing on SQLite, which has one writer
-- {changed:runs}       returns the ids of the rows that changed; the id is the first column
-- {run}, {schedule}     the column lists of statements.py
-- {json_line:listed}   the columns of a list as one JSON array; {join_lines} joins such lines, by name
--
-- A star marks the columns in which the rows of a batch usually differ. If they differ in no other column, one
-- statement runs for the whole batch: on SQLite from a JSON object (`x_changed`, which has the columns of x,
-- then finds the rows that changed, if not all did), on PostgreSQL with the other columns as scalar parameters.

-- name: insert_schedules(id text, namespace text, name text, group_name text, revision bigint, state text, reason text, cursor_at bigint, next_at bigint, wake_at bigint, source text, trail text, failures bigint, runs bigint, missed bigint, paused_at bigint, paused_until bigint, last_started_at bigint, last_finished_at bigint, failing_since bigint, replaced_after bigint, hints text, shard bigint, watched bigint)
INSERT INTO schedules (id, namespace, name, group_name, revision, state, reason, cursor_at, next_at, wake_at,
    source, trail, failures, runs, missed, paused_at, paused_until, last_started_at, last_finished_at,
    failing_since, replaced_after, hints, shard, watched)
{values}

-- name: revise_schedules(id text, replaces bigint, name text, group_name text, revision bigint, state text, reason text, cursor_at bigint, next_at bigint, wake_at bigint, source text, trail text, failures bigint, runs bigint, missed bigint, paused_at bigint, paused_until bigint, last_started_at bigint, last_finished_at bigint, failing_since bigint, replaced_after bigint, hints text, watched bigint)
-- Matches the revision that is replaced, so a stale edit changes no row.
UPDATE schedules SET name = v.name, group_name = v.group_name, revision = v.revision, state = v.state,
    reason = v.reason, cursor_at = v.cursor_at, next_at = v.next_at, wake_at = v.wake_at, source = v.source,
    trail = v.trail, failures = v.failures, runs = v.runs, missed = v.missed, paused_at = v.paused_at,
    paused_until = v.paused_until, last_started_at = v.last_started_at, last_finished_at = v.last_finished_at,
    failing_since = v.failing_since, replaced_after = v.replaced_after, hints = v.hints, watched = v.watched,
    -- What is set aside and keeps its time to wake still waits.
    waits_for = CASE WHEN v.wake_at = schedules.wake_at THEN schedules.waits_for ELSE '' END
{from}
WHERE schedules.id = v.id AND schedules.revision = v.replaces
{changed:schedules}

-- name: insert_revisions(schedule_id text, revision bigint, body text, at bigint, actor text, reason text)
INSERT INTO revisions (schedule_id, revision, body, at, actor, reason)
{values}

-- name: save_progress(id text, state text, reason text, cursor_at bigint, next_at bigint, wake_at bigint, source text, trail text, failures bigint, runs bigint, missed bigint, paused_at bigint, paused_until bigint, last_started_at bigint, last_finished_at bigint, failing_since bigint, replaced_after bigint, hints text, last_run text)
UPDATE schedules SET state = v.state, reason = v.reason, cursor_at = v.cursor_at, next_at = v.next_at,
    wake_at = v.wake_at, source = v.source, trail = v.trail, failures = v.failures, runs = v.runs,
    missed = v.missed, paused_at = v.paused_at, paused_until = v.paused_until,
    last_started_at = v.last_started_at, last_finished_at = v.last_finished_at,
    failing_since = v.failing_since, replaced_after = v.replaced_after, hints = v.hints,
    last_run = CASE WHEN v.last_run <> '' THEN v.last_run ELSE schedules.last_run END
{from}
WHERE schedules.id = v.id

-- name: advance_progress(id text, cursor_at bigint, next_at bigint, wake_at bigint, runs bigint, missed bigint, last_run text)
-- Move a locked schedule on; its other columns stay as they are.
UPDATE schedules SET cursor_at = v.cursor_at, next_at = v.next_at, wake_at = v.wake_at, runs = v.runs,
    missed = v.missed, last_run = v.last_run
{from}
WHERE schedules.id = v.id

-- name: insert_on_time_runs(id* text, namespace text, schedule_id* text, planned_at* bigint, source text, revision* bigint, queue text, ready_bucket text, priority bigint, exclusive bigint, handoff bigint, created_at bigint, previous* text)
-- Insert new ready runs with few columns. The unique index admits each occurrence once.
INSERT INTO runs (id, namespace, schedule_id, planned_at, fire_at, state, source, revision, queue,
    ready_bucket, priority, exclusive, handoff, created_at, previous)
SELECT v.id, v.namespace, v.schedule_id, v.planned_at, v.planned_at, 'ready', v.source, v.revision, v.queue,
    v.ready_bucket, v.priority, v.exclusive, v.handoff, v.created_at, v.previous
{from}
WHERE true
ON CONFLICT (planned_at, schedule_id, dedupe_scope) WHERE dedupe_scope <> id DO NOTHING
{changed:runs}

-- name: insert_on_time_runs_changed [sqlite]
SELECT runs.id FROM runs WHERE runs.id = v.id

-- name: insert_leased_runs(id* text, namespace text, schedule_id* text, planned_at* bigint, source text, revision* bigint, ready_bucket text, priority bigint, exclusive bigint, created_at bigint, previous* text, lease_id* text, holder text, lease_until bigint)
-- Insert runs together with their first lease. The unique index admits each occurrence once.
INSERT INTO runs (id, namespace, schedule_id, planned_at, fire_at, state, source, revision, ready_bucket,
    priority, exclusive, fence, created_at, leased_at, previous, lease_id, holder, lease_until)
SELECT v.id, v.namespace, v.schedule_id, v.planned_at, v.planned_at, 'leased', v.source, v.revision,
    v.ready_bucket, v.priority, v.exclusive, 1, v.created_at, v.created_at, v.previous, v.lease_id, v.holder, v.lease_until
{from}
WHERE true
ON CONFLICT (planned_at, schedule_id, dedupe_scope) WHERE dedupe_scope <> id DO NOTHING
{changed:runs}

-- name: insert_leased_runs_changed [sqlite]
SELECT runs.id FROM runs WHERE runs.id = v.id

-- name: advance_on_time(id text, next_at bigint, last_run text)
-- Move a locked schedule on to its next occurrence.
UPDATE schedules SET cursor_at = schedules.next_at, next_at = v.next_at, wake_at = v.next_at,
    runs = schedules.runs + 1, last_run = v.last_run
{from}
WHERE schedules.id = v.id

-- name: park_unreadable_schedule
UPDATE schedules SET state = 'parked', reason = :reason, next_at = NULL, wake_at = NULL WHERE id = :id

-- name: due_schedules
-- The lower bound skips index entries of rows that were already handled: PostgreSQL keeps them until a vacuum.
SELECT {schedule}
FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :now AND s.wake_at >= :since
    AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.scope = 'installation' AND p.ended_at IS NULL
        AND (p.until IS NULL OR p.until > :now))
ORDER BY s.wake_at, s.id
LIMIT :limit
{skip_locked:s}

-- name: next_due_schedules
-- Schedules that will be due at that instant; nothing is locked.
SELECT s.id, s.name, s.revision, s.state FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :until AND s.wake_at >= :since
ORDER BY s.wake_at, s.id
LIMIT :limit

-- name: due_schedules_of_shard
-- The remainder is written with / and * because psycopg reads a percent sign as a placeholder.
SELECT {schedule}
FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :now AND s.wake_at >= :since
    AND s.shard - s.shard / :shards * :shards = :shard
    AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.scope = 'installation' AND p.ended_at IS NULL
        AND (p.until IS NULL OR p.until > :now))
ORDER BY s.wake_at, s.id
LIMIT :limit
{skip_locked:s}

-- name: get_schedules
SELECT {schedule}
FROM schedules s
WHERE s.id {in:ids}
ORDER BY s.id

-- name: lock_schedules
SELECT id FROM schedules WHERE id {in:ids} ORDER BY id {lock}

-- name: schedules_named
SELECT id, name, revision, state FROM schedules WHERE namespace = :namespace AND name {in:names}

-- name: find_schedules_at_start
SELECT s.id, s.name, s.revision, s.state FROM schedules s JOIN revisions r ON r.schedule_id = s.id AND r.revision = s.revision
WHERE s.state = 'active' AND r.body LIKE :pattern ORDER BY s.id

-- name: find_schedules
SELECT {schedule}, s.namespace, s.name
FROM schedules s
WHERE (s.namespace, s.name) > (:after_namespace, :after_name)
    AND s.namespace >= :first_namespace AND s.namespace <= :last_namespace
    AND (:state = '' OR s.state = :state) AND (:group_name = '' OR s.group_name = :group_name)
    AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
ORDER BY s.namespace, s.name
LIMIT :limit

-- name: get_schedule_snapshot
-- One schedule with its definition, and whether it has downstream links, manual runs ahead, notes, or occurrences
-- after its cursor that were skipped by hand.
SELECT {schedule}, (SELECT v.body FROM revisions v WHERE v.schedule_id = s.id AND v.revision = s.revision),
    EXISTS (SELECT 1 FROM schedule_links l WHERE l.upstream = s.id),
    EXISTS (SELECT 1 FROM runs r WHERE r.schedule_id = s.id AND r.state = 'ready' AND r.deferred = 1
    AND r.dedupe_scope <> ''),
    EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'note' AND o.namespace = s.namespace
        AND o.name > s.id || '/' AND o.name < s.id || '0'),
    EXISTS (SELECT 1 FROM adjustments a WHERE a.schedule_id = s.id AND a.kind IN ('skip', 'move')
        AND a.planned_at > s.cursor_at)
FROM schedules s
WHERE s.namespace = :namespace AND s.name = :name

-- name: schedules_with_ids
SELECT id, name, revision, state FROM schedules WHERE id {in:ids}

-- name: list_schedules
-- A page as one text with one JSON array a line: an unchanged page is recognised by comparing one string.
SELECT {join_lines} FROM (
    SELECT {json_line:listed} AS line, s.name FROM schedules s
    WHERE s.namespace = :namespace AND s.name >= :first AND s.name <= :last AND s.name <> :after
        AND (:state = '' OR s.state = :state) AND (:group_name = '' OR s.group_name = :group_name)
        AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
    ORDER BY s.name
    LIMIT :limit) page

-- name: list_inactive_schedules
SELECT {join_lines} FROM (
    SELECT {json_line:listed} AS line, s.name FROM schedules s
    WHERE s.state <> 'active' AND s.state = :state AND s.namespace = :namespace AND s.name >= :first
    AND s.name <= :last AND s.name <> :after
        AND (:group_name = '' OR s.group_name = :group_name)
        AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
    ORDER BY s.name
    LIMIT :limit) page

-- name: get_revisions(schedule_id text, revision bigint) [postgres]
SELECT r.schedule_id, r.revision, r.body FROM revisions r {join} r.schedule_id = v.schedule_id
    AND r.revision = v.revision

-- name: get_revisions(schedule_id* text, revision* bigint) [sqlite]
SELECT schedule_id, revision, body FROM revisions WHERE schedule_id = v.schedule_id AND revision = v.revision

-- name: list_revisions
SELECT body, at, actor, reason FROM revisions WHERE schedule_id = :schedule_id ORDER BY revision DESC LIMIT :limit

-- name: next_wake_of_shard
SELECT s.wake_at
FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at >= :since AND s.wake_at <= :until
    AND s.shard - s.shard / :shards * :shards = :shard
ORDER BY s.wake_at
LIMIT 1

-- name: insert_runs(id* text, namespace text, schedule_id* text, dedupe_scope* text, planned_at* bigint, fire_at* bigint, state text, deferred bigint, reason text, source text, revision* bigint, queue text, ready_bucket text, priority bigint, exclusive bigint, handoff bigint, fence bigint, last_of bigint, dropped bigint, created_at bigint, finished_at bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint, parent text, previous* text, extra text)
-- The unique index admits each occurrence once; a second insert changes nothing and is no error.
INSERT INTO runs (id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, deferred, reason,
    source, revision, queue, ready_bucket, priority, exclusive, handoff, fence, last_of, dropped, created_at,
    finished_at, lease_id, holder, leased_at, lease_until, parent, previous, extra)
{values}
ON CONFLICT (planned_at, schedule_id, dedupe_scope) WHERE dedupe_scope <> id DO NOTHING
{changed:runs}

-- name: insert_runs_changed [sqlite]
-- The ids were made for these rows, so a row that exists was inserted by this batch.
SELECT runs.id FROM runs WHERE runs.id = v.id

-- name: insert_unique_runs(id* text, namespace text, schedule_id* text, dedupe_scope* text, planned_at* bigint, fire_at* bigint, state text, deferred bigint, reason text, source text, revision* bigint, queue text, ready_bucket text, priority bigint, exclusive bigint, handoff bigint, fence bigint, last_of bigint, dropped bigint, created_at bigint, finished_at bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint, parent text, previous* text, extra text)
-- Each run has a new id and its own dedupe scope, so it cannot exist yet and no conflict clause is needed.
INSERT INTO runs (id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, deferred, reason,
    source, revision, queue, ready_bucket, priority, exclusive, handoff, fence, last_of, dropped, created_at,
    finished_at, lease_id, holder, leased_at, lease_until, parent, previous, extra)
{values}

-- name: insert_manual_runs(id text, namespace text, schedule_id text, dedupe_scope text, planned_at bigint, fire_at bigint, state text, deferred bigint, reason text, source text, revision bigint, queue text, ready_bucket text, priority bigint, exclusive bigint, handoff bigint, fence bigint, last_of bigint, dropped bigint, created_at bigint, finished_at bigint, lease_id text, holder text, leased_at bigint, lease_until bigint, parent text, previous text, extra text)
-- As above, and linked to the newest manual run of the schedule, so that `verify` finds a missing one.
INSERT INTO runs (id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, deferred, reason,
    source, revision, queue, ready_bucket, priority, exclusive, handoff, fence, last_of, dropped, created_at,
    finished_at, lease_id, holder, leased_at, lease_until, parent, previous, extra)
SELECT v.id, v.namespace, v.schedule_id, v.dedupe_scope, v.planned_at, v.fire_at, v.state, v.deferred, v.reason,
    v.source, v.revision, v.queue, v.ready_bucket, v.priority, v.exclusive, v.handoff, v.fence, v.last_of, v.dropped,
    v.created_at, v.finished_at, v.lease_id, v.holder, v.leased_at, v.lease_until, v.parent,
    CASE WHEN v.previous <> '' THEN v.previous ELSE coalesce((SELECT max(m.id) FROM runs m
        WHERE m.schedule_id = v.schedule_id AND m.schedule_id <> '' AND m.dedupe_scope = m.id), '') END,
    v.extra
{from}

-- name: relink_runs(id text, previous text)
UPDATE runs SET previous = v.previous {from} WHERE runs.id = v.id

-- name: get_runs
SELECT {run} FROM runs WHERE id {in:ids} ORDER BY id

-- name: lock_runs
SELECT id FROM runs WHERE id {in:ids} ORDER BY id {lock}

-- name: find_occurrence
SELECT {run} FROM runs
WHERE planned_at = :planned_at AND schedule_id = :schedule_id AND dedupe_scope = '' AND dedupe_scope <> id

-- name: walk_schedule
-- Follow a schedule's history from its newest run back. An index by schedule would be written at random places.
WITH RECURSIVE walk (id, step) AS (
    SELECT runs.id, 1 FROM runs WHERE runs.id = :start
    UNION ALL
    SELECT r.previous, walk.step + 1 FROM walk JOIN runs r ON r.id = walk.id
    WHERE r.previous <> '' AND walk.step < :max_rows
)
SELECT {run} FROM walk JOIN runs ON runs.id = walk.id ORDER BY walk.step

-- name: list_manual_runs
SELECT {run} FROM runs
WHERE schedule_id = :id AND schedule_id <> '' AND dedupe_scope = id AND id <= :last
ORDER BY id DESC LIMIT :limit

-- name: count_manual_runs
SELECT schedule_id, count(*) FROM runs
WHERE schedule_id {in:schedule_ids} AND schedule_id <> '' AND dedupe_scope = id GROUP BY schedule_id

-- name: newest_unfinished_run
-- One branch per state, because each partial index is used only if the query names its state.
SELECT max(id) FROM (
    SELECT id FROM runs WHERE state = 'parked' AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'held' AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'leased' AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'ready' AND deferred = 0 AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'ready' AND deferred = 1 AND schedule_id = :id AND id || '' < :before
) AS waiting

-- name: last_run
SELECT last_run FROM schedules WHERE id = :id

-- name: list_runs
SELECT {run} FROM runs
WHERE id < :before AND id >= :from AND (:namespace = '' OR namespace = :namespace)
    AND (:queue = '' OR queue = :queue)
    AND (:state = '' OR state = :state) AND planned_at >= :since AND planned_at <= :until
ORDER BY id DESC
LIMIT :limit

-- name: live_runs
SELECT {run} FROM runs
WHERE schedule_id {in:schedule_ids} AND exclusive = 1 AND schedule_id <> '' AND state IN ('ready', 'leased')
UNION ALL
SELECT {run} FROM runs WHERE schedule_id {in:schedule_ids} AND state = 'held'
ORDER BY 5, 1

-- name: pending_work
-- What a tick reads before it writes. `min(lease_until)` scans all leases, so it is optional. Ready runs are looked
-- up from the end of the index, because on PostgreSQL its front is full of dead entries of runs that were leased;
-- :since skips such entries of schedules and deferred runs, :leased_since those of leases.
SELECT (SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL AND wake_at >= :since),
    (SELECT min(fire_at) FROM runs WHERE state = 'ready' AND deferred = 1 AND fire_at >= :since),
    CASE WHEN :of_any_bucket = 1 THEN (SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 0
        AND ready_bucket < '~' ORDER BY ready_bucket DESC, priority DESC, planned_at DESC, id DESC LIMIT 1)
    ELSE (SELECT f.found FROM (SELECT (SELECT 1 FROM runs r
            WHERE r.state = 'ready' AND r.deferred = 0 AND r.handoff = 0 AND r.ready_bucket = wanted.value
            ORDER BY r.priority DESC, r.planned_at DESC, r.id DESC LIMIT 1) AS found
        FROM {each:buckets}) f WHERE f.found IS NOT NULL LIMIT 1) END,
    (SELECT 1 FROM runs WHERE state = 'leased' AND cancel_at IS NOT NULL AND holder = :holder LIMIT 1),
    leases.first_end,
    CASE WHEN :with_held = 1 THEN (SELECT 1 FROM runs WHERE state = 'held' LIMIT 1) END,
    (SELECT max(COALESCE(until, 9000000000000000000)) FROM pauses WHERE scope = 'installation' AND ended_at IS NULL),
    (SELECT 1 FROM schedules WHERE waits_for <> '' LIMIT 1),
    CASE WHEN :of_any_bucket = 1 THEN (SELECT min(f.open_at) FROM (
        SELECT 0 AS open_at FROM (SELECT 1 FROM limit_groups WHERE waits_for = '' AND handoff = 0 LIMIT 1) o
        UNION ALL SELECT min(open_at) FROM limit_groups WHERE waits_for = 'rate' AND handoff = 0) f)
    ELSE (SELECT min(f.open_at) FROM (SELECT (SELECT 0 FROM limit_groups g
            WHERE g.waits_for = '' AND g.handoff = 0 AND g.base = wanted.value LIMIT 1) AS open_at FROM {each:bases}
        UNION ALL SELECT (SELECT min(g.open_at) FROM limit_groups g
            WHERE g.waits_for = 'rate' AND g.handoff = 0 AND g.base = wanted.value) FROM {each:bases}) f) END,
    leases.first_start,
    (SELECT max(id) FROM ready_buckets)
FROM (SELECT min(lease_until) AS first_end, min(leased_at) AS first_start FROM runs
    WHERE :with_lease_end = 1 AND state = 'leased' AND leased_at >= :leased_since) AS leases

-- name: waiting_rows_of_past
-- The first rows that wait in a range of the past: a schedule, a deferred run, and the start of a lease.
SELECT (SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL AND wake_at >= :since AND wake_at < :until),
    (SELECT min(fire_at) FROM runs WHERE state = 'ready' AND deferred = 1 AND fire_at >= :since AND fire_at < :until),
    (SELECT min(leased_at) FROM runs WHERE state = 'leased' AND leased_at >= :since AND leased_at < :until)

-- name: new_buckets
SELECT id, bucket FROM ready_buckets WHERE id > :after ORDER BY id

-- name: find_buckets
SELECT bucket FROM ready_buckets WHERE bucket {in:buckets}

-- name: lock_buckets [postgres]
-- Buckets are added by one transaction at a time, so that their ids ascend in the order of commits.
SELECT 1 FROM pg_advisory_xact_lock(hashtext('timewright.ready_buckets'))

-- name: insert_buckets(bucket text)
INSERT INTO ready_buckets (bucket) {values} ON CONFLICT (bucket) DO NOTHING

-- name: set_aside(id text, wake_at bigint, waits_for text)
-- No live instance can run these locked schedules: they are not due again before that instant.
UPDATE schedules SET wake_at = v.wake_at, waits_for = v.waits_for {from} WHERE schedules.id = v.id

-- name: set_aside_schedules
-- Not those that wait for the end of a pause.
SELECT id, name, revision, state FROM schedules WHERE waits_for <> '' AND substr(waits_for, 1, length(:pause)) <> :pause
ORDER BY waits_for, id LIMIT :limit

-- name: waiting_buckets
WITH RECURSIVE buckets (bucket) AS (
    SELECT min(waits_for) FROM schedules WHERE waits_for <> ''
    UNION ALL
    SELECT (SELECT min(s.waits_for) FROM schedules s WHERE s.waits_for <> '' AND s.waits_for > buckets.bucket)
    FROM buckets WHERE buckets.bucket IS NOT NULL
)
SELECT bucket FROM buckets WHERE bucket IS NOT NULL

-- name: wake_waiting_schedules
UPDATE schedules SET waits_for = '', wake_at = CASE WHEN wake_at IS NULL THEN NULL ELSE :now END
WHERE waits_for <> '' AND waits_for {in:buckets}

-- name: nonempty_buckets
SELECT f.bucket FROM (SELECT wanted.value AS bucket, (SELECT 1 FROM runs r
        WHERE r.state = 'ready' AND r.deferred = 0 AND r.handoff = 0 AND r.ready_bucket = wanted.value
        ORDER BY r.priority, r.planned_at, r.id LIMIT 1) AS found
    FROM {each:buckets}) f
WHERE f.found IS NOT NULL

-- name: first_ready_of_buckets
SELECT (SELECT r.id FROM runs r
    WHERE r.state = 'ready' AND r.deferred = 0 AND r.handoff = 0 AND r.ready_bucket = wanted.value
    ORDER BY r.priority, r.planned_at, r.id LIMIT 1)
FROM {each:buckets}

-- name: any_deferred_due
SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 1 AND fire_at <= :now LIMIT 1

-- name: wake_deferred_runs
-- Deferred runs whose instant has come become ready to lease, at most :limit at a time.
UPDATE runs SET deferred = 0
WHERE id IN (SELECT id FROM runs WHERE state = 'ready' AND deferred = 1 AND fire_at <= :now
    ORDER BY fire_at LIMIT :limit {skip_locked})

-- name: ready_buckets
-- The distinct ready buckets, found by one index lookup each (a loose index scan).
WITH RECURSIVE buckets (ready_bucket) AS (
    SELECT min(ready_bucket) FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff
        AND ready_bucket < '~'
    UNION ALL
    SELECT (SELECT min(r.ready_bucket) FROM runs r
        WHERE r.state = 'ready' AND r.deferred = 0 AND r.handoff = :handoff
        AND r.ready_bucket > buckets.ready_bucket AND r.ready_bucket < '~')
    FROM buckets WHERE buckets.ready_bucket IS NOT NULL
)
SELECT ready_bucket FROM buckets WHERE ready_bucket IS NOT NULL

-- name: wait_for_other_leasing [postgres]
-- Large leases are made one after another: at the same time, each would pass what the others have locked. A process may
-- be suspended while it leases, so nobody waits for longer than 0.5 s.
WITH RECURSIVE tries (number, is_locked) AS (
    SELECT 1, pg_try_advisory_xact_lock(hashtext('timewright.leasing'))
    UNION ALL
    SELECT number + 1, CASE WHEN pg_sleep(0.002)::text = ''
        THEN pg_try_advisory_xact_lock(hashtext('timewright.leasing')) END
    FROM tries WHERE NOT is_locked AND number < 250
)
SELECT max(number) FROM tries

-- name: ready_runs_of_bucket
-- Few columns, because most ready runs were never leased; the last column says so. The others are read in full.
SELECT id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, source, revision, queue, priority,
    exclusive, handoff, created_at, previous, extra,
    CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = '' AND finished_at IS NULL
        AND parent = '' THEN 1 ELSE 0 END
FROM runs
WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff AND ready_bucket = :ready_bucket
ORDER BY priority, planned_at, id
LIMIT :limit
{skip_locked}

-- name: first_ready_runs [sqlite]
-- The same for all buckets together, each row with its bucket.
SELECT ready_bucket, id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, source, revision,
    queue, priority, exclusive, handoff, created_at, previous, extra,
    CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = '' AND finished_at IS NULL
        AND parent = '' THEN 1 ELSE 0 END
FROM runs
WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff AND ready_bucket < '~'
ORDER BY ready_bucket, priority, planned_at, id
LIMIT :limit

-- name: ready_runs_of_all_buckets [postgres]
-- The same for all buckets in one round trip. The last columns say whether deferred runs are due, and whether groups
-- wait; if no run is ready, one row of NULLs carries them. Buckets are found from the end of the index, for the reason given at `pending_work`.
WITH RECURSIVE buckets (ready_bucket) AS (
    SELECT max(ready_bucket) FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff
        AND ready_bucket < '~'
    UNION ALL
    SELECT (SELECT max(r.ready_bucket) FROM runs r
        WHERE r.state = 'ready' AND r.deferred = 0 AND r.handoff = :handoff
        AND r.ready_bucket < buckets.ready_bucket)
    FROM buckets WHERE buckets.ready_bucket IS NOT NULL
)
SELECT r.id, r.namespace, r.schedule_id, r.dedupe_scope, r.planned_at, r.fire_at, r.state, r.source,
    r.revision, r.queue, r.priority, r.exclusive, r.handoff, r.created_at, r.previous, r.extra, r.is_new,
    buckets.ready_bucket, others.due, others.groups
FROM (SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 1 AND fire_at <= :now) AS due,
    EXISTS (SELECT 1 FROM limit_groups WHERE waits_for = '' AND handoff = :handoff)
    OR EXISTS (SELECT 1 FROM limit_groups WHERE waits_for = 'rate' AND handoff = :handoff) AS groups) others
LEFT JOIN (
    buckets CROSS JOIN LATERAL (
        SELECT id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, source, revision, queue,
        priority, exclusive,
            handoff, created_at, previous, extra,
            CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = ''
                AND finished_at IS NULL AND parent = '' THEN 1 ELSE 0 END AS is_new
        FROM runs
        WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff AND ready_bucket = buckets.ready_bucket
        ORDER BY priority, planned_at, id
        LIMIT :limit
        {skip_locked}
    ) r
) ON true

-- name: ready_keys_of_bucket [sqlite]
-- Only the index is read, to merge several buckets before rows are read.
SELECT priority, planned_at, id FROM runs
WHERE state = 'ready' AND deferred = 0 AND handoff = 0 AND ready_bucket = :ready_bucket
ORDER BY priority, planned_at, id
LIMIT :limit

-- name: ready_runs_by_id [sqlite]
SELECT id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, source, revision, queue, priority,
    exclusive, handoff, created_at, previous, extra,
    CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = '' AND finished_at IS NULL
        AND parent = '' THEN 1 ELSE 0 END, ready_bucket
FROM runs
WHERE id {in:ids}
ORDER BY priority, planned_at, id

-- name: ready_runs_of_buckets [postgres]
-- The best runs of several buckets together. At most :per_bucket keys of each are read from the index. Where that cuts
-- a bucket, only keys up to its last are used, so that no better run is left out. Then at most :limit rows are locked,
-- so that other instances lease the rest. The last columns say whether deferred runs are due, and whether a bucket was
-- cut; if no run is found, one row of NULLs carries them. The rows are looked up by id: `state || ''` keeps the planner
-- from reading all ready runs instead.
WITH keys AS MATERIALIZED (
    SELECT k.id, k.priority, k.planned_at, k.number FROM {each:buckets} CROSS JOIN LATERAL (
        SELECT id, priority, planned_at, row_number() OVER (ORDER BY priority, planned_at, id) AS number FROM (
            SELECT id, priority, planned_at FROM runs
            WHERE state = 'ready' AND deferred = 0 AND handoff = 0 AND ready_bucket = wanted.value
            ORDER BY priority, planned_at, id LIMIT :per_bucket
        ) first
    ) k
), cut AS MATERIALIZED (
    SELECT priority, planned_at, id FROM keys WHERE number = :per_bucket ORDER BY priority, planned_at, id LIMIT 1
), found AS MATERIALIZED (
    SELECT id FROM keys WHERE NOT EXISTS (SELECT 1 FROM cut)
        OR (priority, planned_at, id) <= (SELECT priority, planned_at, id FROM cut)
)
SELECT r.id, r.namespace, r.schedule_id, r.dedupe_scope, r.planned_at, r.fire_at, r.state, r.source,
    r.revision, r.queue, r.priority, r.exclusive, r.handoff, r.created_at, r.previous, r.extra, r.is_new,
    r.ready_bucket, totals.due, totals.is_cut
FROM (SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 1 AND fire_at <= :now) AS due,
    EXISTS (SELECT 1 FROM cut) AS is_cut) totals
LEFT JOIN (
    SELECT runs.id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, source, revision, queue,
        priority, exclusive, handoff, created_at, previous, extra, ready_bucket,
        CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = ''
            AND finished_at IS NULL AND parent = '' THEN 1 ELSE 0 END AS is_new
    FROM runs
    WHERE runs.id = ANY (ARRAY(SELECT id FROM found)) AND state || '' = 'ready' AND deferred + 0 = 0
    ORDER BY priority, planned_at, runs.id
    LIMIT :limit
    {skip_locked:runs}
) r ON true

-- name: oldest_ready_runs
SELECT {run} FROM runs
WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff AND ready_bucket = :ready_bucket
ORDER BY planned_at, id
LIMIT :limit
{skip_locked}

-- name: queue_runs
-- One branch per partial index of unfinished runs, so that no finished run is read.
SELECT {run} FROM runs WHERE state = 'ready' AND deferred = 0 AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'ready' AND deferred = 1 AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'leased' AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'held' AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'parked' AND queue = :queue AND namespace = :namespace
ORDER BY priority, planned_at, id
LIMIT :limit

-- name: ensure_limits(limit_key text, capacity bigint, rate_interval bigint, burst bigint, weight bigint)
INSERT INTO limits (limit_key, capacity, rate_interval, burst, weight) {values} ON CONFLICT (limit_key) DO NOTHING

-- name: set_limits(limit_key text, capacity bigint, rate_interval bigint, burst bigint)
-- A limit whose rate changes forgets how much of the old rate was used.
INSERT INTO limits (limit_key, capacity, rate_interval, burst) {values} ON CONFLICT (limit_key) DO UPDATE SET
    capacity = excluded.capacity, rate_interval = excluded.rate_interval, burst = excluded.burst,
    arrival_at = CASE WHEN limits.rate_interval = excluded.rate_interval AND limits.burst = excluded.burst
        THEN limits.arrival_at ELSE 0 END

-- name: set_limit_keys
-- The rows of all values of the key of a limit: from :first to before :last.
UPDATE limits SET capacity = :capacity, rate_interval = :rate_interval, burst = :burst, weight = 1,
    arrival_at = CASE WHEN rate_interval = :rate_interval AND burst = :burst THEN arrival_at ELSE 0 END
WHERE limit_key >= :first AND limit_key < :last

-- name: set_limit_weights(limit_key text, weight bigint)
UPDATE limits SET weight = v.weight {from} WHERE limits.limit_key = v.limit_key

-- name: lock_limits
SELECT limit_key, capacity, rate_interval, burst, arrival_at, weight, share_used FROM limits
WHERE limit_key {in:keys} ORDER BY limit_key {lock}

-- name: share_limits [postgres]
-- Keeps the definitions of limits unchanged while the row of a new value of their key is made.
SELECT limit_key, capacity, rate_interval, burst FROM limits WHERE limit_key {in:keys} ORDER BY limit_key FOR SHARE

-- name: limits_with_use [sqlite]
-- Capacity and use in one query; SQLite has one writer, so neither changes before the commit.
SELECT limit_key, capacity, rate_interval, burst, arrival_at, weight, share_used, (SELECT count(*) FROM limit_holds
    WHERE limit_holds.limit_key = limits.limit_key) FROM limits WHERE limit_key {in:keys} ORDER BY limit_key

-- name: save_limit_use(limit_key text, arrival_at bigint, share_used bigint, used_at bigint)
UPDATE limits SET arrival_at = v.arrival_at, share_used = v.share_used, used_at = v.used_at {from}
WHERE limits.limit_key = v.limit_key

-- name: largest_shares
SELECT wanted.value, (SELECT max(g.share_used) FROM limit_groups g WHERE g.share_limit = wanted.value) FROM {each:limits}

-- name: open_groups
-- The groups of a base whose runs may start now: those that are open, least served first, and those whose rate allows
-- a start again.
SELECT bucket, priority FROM (SELECT bucket, priority FROM limit_groups
    WHERE waits_for = '' AND handoff = :handoff AND base = :base ORDER BY priority, share_used LIMIT :limit) o
UNION ALL
SELECT bucket, priority FROM (SELECT bucket, priority FROM limit_groups
    WHERE waits_for = 'rate' AND handoff = :handoff AND base = :base AND open_at <= :now
    ORDER BY open_at LIMIT :limit) r

-- name: group_bases
-- The bases of waiting groups, found by one index lookup each.
WITH RECURSIVE bases (base) AS (
    SELECT min(base) FROM (SELECT min(base) AS base FROM limit_groups WHERE waits_for = '' AND handoff = :handoff
        UNION ALL SELECT min(base) FROM limit_groups WHERE waits_for = 'rate' AND handoff = :handoff) f
    UNION ALL
    SELECT (SELECT min(n.base) FROM (
            SELECT min(g.base) AS base FROM limit_groups g
                WHERE g.waits_for = '' AND g.handoff = :handoff AND g.base > bases.base
            UNION ALL
            SELECT min(h.base) FROM limit_groups h
                WHERE h.waits_for = 'rate' AND h.handoff = :handoff AND h.base > bases.base) n)
    FROM bases WHERE bases.base IS NOT NULL
)
SELECT base FROM bases WHERE base IS NOT NULL

-- name: ready_runs_of_groups [postgres]
-- The best runs of several buckets, of each as many as its number says.
SELECT r.id, r.namespace, r.schedule_id, r.dedupe_scope, r.planned_at, r.fire_at, r.state, r.source,
    r.revision, r.queue, r.priority, r.exclusive, r.handoff, r.created_at, r.previous, r.extra, r.is_new, wanted.bucket
FROM unnest(:buckets::text[], :counts::bigint[]) AS wanted (bucket, count) CROSS JOIN LATERAL (
    SELECT id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, source, revision, queue,
        priority, exclusive, handoff, created_at, previous, extra,
        CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = ''
            AND finished_at IS NULL AND parent = '' THEN 1 ELSE 0 END AS is_new
    FROM runs
    WHERE state = 'ready' AND deferred = 0 AND handoff = :handoff AND ready_bucket = wanted.bucket
    ORDER BY priority, planned_at, id
    LIMIT wanted.count
    {skip_locked}
) r

-- name: save_groups(bucket text, share_used bigint, waits_for text, open_at bigint)
UPDATE limit_groups SET share_used = v.share_used, waits_for = v.waits_for, open_at = v.open_at,
    priority = COALESCE((SELECT min(r.priority) FROM runs r WHERE r.state = 'ready' AND r.deferred = 0
        AND r.handoff = limit_groups.handoff AND r.ready_bucket = limit_groups.bucket), limit_groups.priority)
{from} WHERE limit_groups.bucket = v.bucket

-- name: lock_groups [postgres]
-- Not those to which a transaction has added a run that is not committed.
SELECT bucket FROM limit_groups WHERE bucket {in:buckets} ORDER BY bucket {skip_locked}

-- name: close_empty_groups
UPDATE limit_groups SET waits_for = '-', open_at = :now
WHERE bucket {in:buckets} AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.state = 'ready' AND r.deferred = 0
    AND r.handoff = limit_groups.handoff AND r.ready_bucket = limit_groups.bucket)

-- name: open_waiting_groups
-- The groups that waited for a lease of these limit keys to end.
UPDATE limit_groups SET waits_for = '' WHERE waits_for <> '' AND waits_for {in:keys}

-- name: open_groups_of_limit
-- The groups that waited for a limit that was changed; those that wait for a rate find out again for how long.
UPDATE limit_groups SET waits_for = '' WHERE waits_for <> '' AND (waits_for = 'rate'
    OR (waits_for >= :first AND waits_for < :last))

-- name: limit_keys
SELECT limit_key FROM limits WHERE limit_key >= :first AND limit_key < :last ORDER BY limit_key LIMIT :limit

-- name: count_holds_of_limit
SELECT count(*) FROM limit_holds WHERE limit_key >= :first AND limit_key < :last

-- name: prune_groups
DELETE FROM limit_groups WHERE waits_for = '-' AND open_at < :before

-- name: prune_limit_keys
-- Rows of values that are out of use; the next run makes them again from the limit. Names have no control characters.
DELETE FROM limits WHERE used_at > 0 AND used_at < :before AND arrival_at < :before
    AND NOT EXISTS (SELECT 1 FROM limit_holds h WHERE h.limit_key = limits.limit_key)

-- name: count_limit_holds
SELECT limit_key, count(*) FROM limit_holds WHERE limit_key {in:keys} GROUP BY limit_key

-- name: insert_limit_holds(limit_key text, run_id text, fence bigint)
INSERT INTO limit_holds (limit_key, run_id, fence) {values}

-- name: delete_limit_holds
DELETE FROM limit_holds WHERE run_id {in:ids}

-- name: held_limit_keys
SELECT DISTINCT limit_key FROM limit_holds WHERE run_id {in:ids}

-- name: lease_runs(id* text, fence bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint)
-- Every lease raises the fence, so a grant made from an older read changes nothing. `state || ''` hides the column from
-- the planner's statistics: taken when nothing was ready they promise one row, and PostgreSQL then compares every
-- ready run with every grant.
UPDATE runs SET state = 'leased', fence = runs.fence + 1, lease_id = v.lease_id, holder = v.holder,
    leased_at = v.leased_at, lease_until = v.lease_until, started_at = NULL, cancel_at = NULL, reason = ''
{from}
WHERE runs.id = v.id AND runs.state || '' = 'ready' AND runs.fence = v.fence
    AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.scope = 'installation' AND p.ended_at IS NULL
        AND (p.until IS NULL OR p.until > v.leased_at)
        AND (substr(runs.queue, 1, 8) <> 'channel.' OR p.origin IN ('restore', 'move')))
{changed:runs}

-- name: lease_runs_changed [sqlite]
SELECT runs.id FROM runs WHERE runs.id = v.id AND runs.lease_id = v.lease_id AND runs.fence = v.fence + 1

-- name: renew_leases(id text, fence bigint, lease_until bigint, despite_cancel bigint)
-- A lease never becomes shorter: an earlier end leaves lease_until as it was. A cancelled run is renewed only while
-- its work cannot be killed.
UPDATE runs SET lease_until = CASE WHEN (runs.cancel_at IS NULL OR v.despite_cancel = 1)
    AND v.lease_until > runs.lease_until THEN v.lease_until ELSE runs.lease_until END
{from}
WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence
RETURNING runs.id, runs.fence, runs.cancel_at

-- name: expired_leases
SELECT {run} FROM runs WHERE state = 'leased' AND lease_until <= :now
ORDER BY lease_until, id LIMIT :limit {skip_locked}

-- name: leases_of_holder
SELECT {run} FROM runs WHERE state = 'leased' AND holder = :holder
ORDER BY lease_until, id LIMIT :limit {skip_locked}

-- name: leased_runs
-- Sorted by the caller, here and below: ORDER BY id would make SQLite scan all history by the primary key.
SELECT {run} FROM runs WHERE state = 'leased' AND (:holder = '' OR holder = :holder)

-- name: waiting_steps
-- The index of waiting steps is used only if the query names their holder.
SELECT {run} FROM runs WHERE state = 'leased' AND holder = 'wait' AND namespace = :namespace
    AND ready_bucket >= :first AND ready_bucket <= :last

-- name: find_lease
-- A lease id begins with the instant of the lease, so a range of leased_at finds it in the index of live leases.
SELECT {run} FROM runs
WHERE state = 'leased' AND leased_at >= :since AND leased_at < :until AND lease_id = :lease_id

-- name: cancel_requested_runs
SELECT {run} FROM runs
WHERE state = 'leased' AND cancel_at IS NOT NULL AND (:holder = '' OR holder = :holder)

-- name: park_unreadable_runs
-- Park rows that cannot be decoded, so that they block no other run.
UPDATE runs SET state = 'parked', reason = 'unreadable', lease_id = '', holder = '', leased_at = NULL,
    lease_until = NULL, cancel_at = NULL
WHERE id {in:ids}

-- name: settle_runs(id* text, fence bigint, state text, deferred bigint, fire_at bigint, reason text, attempts bigint, refunds bigint, losses bigint, deferred_since bigint, started_at* bigint, finished_at bigint, outcome_label text, error text)
-- A result of a lost lease carries an old fence and changes no row. A finished run keeps its fire_at.
UPDATE runs SET state = v.state, deferred = v.deferred, fire_at = coalesce(v.fire_at, runs.fire_at),
    reason = v.reason, attempts = v.attempts, refunds = v.refunds, losses = v.losses,
    deferred_since = v.deferred_since, started_at = v.started_at,
    finished_at = v.finished_at, outcome_label = v.outcome_label, error = v.error, lease_id = '', holder = '',
    leased_at = NULL, lease_until = NULL, cancel_at = NULL
{from}
WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence
{changed:runs}

-- name: settle_runs_changed [sqlite]
-- Runs before the attempts of this batch are inserted: a run that was settled earlier under this fence has one.
SELECT runs.id FROM runs
WHERE runs.id = v.id AND runs.fence = v.fence AND runs.state = v.state AND runs.finished_at IS v.finished_at
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = runs.id AND a.fence = runs.fence)

-- name: insert_attempts(run_id* text, fence bigint, number bigint, lease_id* text, holder text, leased_at* bigint, lease_until* bigint, started_at* bigint, ended_at bigint, outcome text, charged bigint, outcome_label text, error text, result text, cost text)
INSERT INTO attempts (run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at,
    outcome, charged, outcome_label, error, result, cost)
{values}

-- name: change_runs(id text, was text, fence bigint, state text, deferred bigint, fire_at bigint, reason text, attempts bigint, refunds bigint, losses bigint, deferred_since bigint, finished_at bigint, error text)
UPDATE runs SET state = v.state, deferred = v.deferred, fire_at = v.fire_at, reason = v.reason,
    attempts = v.attempts, refunds = v.refunds, losses = v.losses, deferred_since = v.deferred_since,
    finished_at = v.finished_at, error = v.error
{from}
WHERE runs.id = v.id AND runs.state = v.was AND runs.fence = v.fence AND v.was <> 'leased'
{changed:runs}

-- name: request_cancel(id text, at bigint, until bigint, reason text)
-- A cancelled lease is not renewed, so lease_until also bounds how long a replacement waits.
UPDATE runs SET cancel_at = v.at, reason = v.reason,
    lease_until = CASE WHEN runs.lease_until < v.until THEN runs.lease_until ELSE v.until END
{from}
WHERE runs.id = v.id AND runs.state = 'leased' AND runs.cancel_at IS NULL
{changed:runs}

-- name: failing_schedules
SELECT id FROM schedules WHERE failures > 0 LIMIT :limit

-- name: run_end_effects
-- Read when runs end: is any run held, does any schedule follow another, did any schedule fail last?
SELECT (SELECT 1 FROM runs WHERE state = 'held' LIMIT 1), (SELECT 1 FROM schedule_links LIMIT 1),
    (SELECT 1 FROM schedules WHERE failures > 0 LIMIT 1)

-- name: releasable_runs
-- The first held run of each schedule that has no ready or leased run. The unary plus keeps the planner from
-- scanning all runs by planned_at; held runs are few and have their own index.
SELECT {run} FROM runs
WHERE runs.state = 'held'
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.state = 'held'
        AND (b.planned_at < runs.planned_at OR (b.planned_at = runs.planned_at AND b.id < runs.id)))
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.exclusive = 1
        AND b.schedule_id <> '' AND b.state IN ('ready', 'leased'))
ORDER BY +runs.planned_at, runs.id
LIMIT :limit

-- name: releasable_runs_of_schedules
-- The same for some schedules only.
SELECT {run} FROM runs
WHERE runs.schedule_id {in:schedule_ids} AND runs.state = 'held'
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.state = 'held'
        AND (b.planned_at < runs.planned_at OR (b.planned_at = runs.planned_at AND b.id < runs.id)))
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.exclusive = 1
        AND b.schedule_id <> '' AND b.state IN ('ready', 'leased'))
ORDER BY runs.planned_at, runs.id
LIMIT :limit

-- name: get_attempts
SELECT run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at, outcome, charged,
    outcome_label, error, result, cost
FROM attempts WHERE run_id {in:ids} ORDER BY run_id, fence

-- name: insert_objects(kind text, namespace text, name text, revision bigint, body text, at bigint)
INSERT INTO objects (kind, namespace, name, revision, body, at)
{values}
ON CONFLICT (kind, namespace, name) DO UPDATE SET revision = excluded.revision, body = excluded.body,
    at = excluded.at

-- name: create_objects(kind text, namespace text, name text, revision bigint, body text, at bigint)
INSERT INTO objects (kind, namespace, name, revision, body, at)
{values}
ON CONFLICT (kind, namespace, name) DO NOTHING
RETURNING kind, namespace, name

-- name: object_revisions
SELECT name, revision FROM objects WHERE kind = :kind AND namespace = :namespace AND name {in:names}
    ORDER BY name {lock}

-- name: get_objects
SELECT kind, namespace, name, revision, body, at FROM objects
WHERE kind = :kind AND (:namespace = '' OR namespace = :namespace) AND (:all_names = 1 OR name {in:names})
ORDER BY namespace, name

-- name: delete_object
DELETE FROM objects WHERE kind = :kind AND namespace = :namespace AND name = :name RETURNING name

-- name: insert_audit(at bigint, namespace text, actor text, origin text, action text, subject text, before text, after text, reason text)
INSERT INTO audit (at, namespace, actor, origin, action, subject, before, after, reason)
{values}

-- name: last_audit
SELECT max(seq) FROM audit

-- name: last_audit_seal
SELECT position, hash, (SELECT max(seq) FROM audit_seals) FROM audit_seals ORDER BY position DESC LIMIT 1

-- name: insert_audit_seals(position bigint, seq bigint, hash text)
INSERT INTO audit_seals (position, seq, hash)
{values}

-- name: unsealed_audit
-- An entry may be committed after entries with higher numbers, so the search begins before the last sealed one.
SELECT a.seq, a.at, a.namespace, a.actor, a.origin, a.action, a.subject, a.before, a.after, a.reason FROM audit a
WHERE a.seq > :after AND NOT EXISTS (SELECT 1 FROM audit_seals s WHERE s.seq = a.seq) ORDER BY a.seq LIMIT :limit

-- name: sealed_audit
SELECT s.position, s.hash, s.seq, a.at, a.namespace, a.actor, a.origin, a.action, a.subject, a.before, a.after,
    a.reason
FROM audit_seals s LEFT JOIN audit a ON a.seq = s.seq
WHERE s.position > :after ORDER BY s.position LIMIT :limit

-- name: count_audit
SELECT count(*) FROM audit

-- name: list_audit
SELECT seq, at, namespace, actor, origin, action, subject, before, after, reason FROM audit
WHERE seq < :before AND (:namespace = '' OR namespace = :namespace) ORDER BY seq DESC LIMIT :limit

-- name: insert_adjustments(schedule_id text, seq bigint, namespace text, kind text, at bigint, cursor_at bigint, until bigint, planned_at bigint, moved_to bigint, hinted_interval bigint, actor text, origin text, reason text)
INSERT INTO adjustments (schedule_id, seq, namespace, kind, at, cursor_at, until, planned_at, moved_to, hinted_interval, actor, origin, reason)
{values}

-- name: last_adjustment_numbers
SELECT schedule_id, max(seq) FROM adjustments WHERE schedule_id {in:ids} GROUP BY schedule_id

-- name: list_adjustments
SELECT schedule_id, namespace, kind, at, cursor_at, until, planned_at, moved_to, hinted_interval, actor, origin, reason
FROM adjustments WHERE schedule_id = :schedule_id ORDER BY seq DESC LIMIT :limit

-- name: last_pauses
SELECT schedule_id, namespace, kind, at, cursor_at, until, planned_at, moved_to, hinted_interval, actor, origin, reason
FROM adjustments a WHERE a.schedule_id {in:schedule_ids} AND a.kind = 'pause'
  AND a.seq = (SELECT max(b.seq) FROM adjustments b WHERE b.schedule_id = a.schedule_id AND b.kind = 'pause')

-- name: insert_pauses(id text, scope text, namespace text, name text, due text, actor text, origin text, reason text, at bigint, until bigint)
INSERT INTO pauses (id, scope, namespace, name, due, actor, origin, reason, at, until)
{values}

-- name: open_pauses
SELECT id, scope, namespace, name, due, actor, origin, reason, at, until, ended_at FROM pauses
WHERE ended_at IS NULL OR ended_at > :since ORDER BY at, id

-- name: any_copy_pause
-- A store that was restored or moved sends no messages: another store may send them.
SELECT 1 FROM pauses
WHERE scope = 'installation' AND ended_at IS NULL AND origin IN ('restore', 'move') LIMIT 1

-- name: end_elapsed_pauses
UPDATE pauses SET ended_at = until, ended_by = 'time' WHERE ended_at IS NULL AND until <= :now

-- name: end_pause
UPDATE pauses SET ended_at = CASE WHEN until < :at THEN until ELSE :at END, ended_by = :by
WHERE id = :id AND ended_at IS NULL RETURNING id

-- name: get_meta
SELECT value FROM meta WHERE name = :name

-- name: put_meta
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: raise_meta
-- Raise a number; a lower value changes nothing.
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE CAST(excluded.value AS BIGINT) > CAST(meta.value AS BIGINT)

-- name: lock_meta
-- Lock the row until the transaction ends; inserts it if it is missing.
INSERT INTO meta (name, value) VALUES (:name, '') ON CONFLICT (name) DO UPDATE SET value = meta.value

-- name: prunable_runs
-- Ids sort by time, so the oldest finished runs are at the front of the table. Age counts from the end of a run.
-- A workflow step stays as long as its workflow run, which may still read its result, also when it is retried.
SELECT id FROM runs
WHERE id < :last AND state IN ('succeeded', 'failed', 'skipped', 'cancelled')
    AND (id < :beyond OR (id < :aged AND (finished_at IS NULL OR finished_at < :ended)))
    AND (parent = '' OR NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = runs.parent
        AND (p.state IN ('ready', 'held', 'leased', 'parked')
            OR (runs.id >= :beyond AND p.finished_at >= :ended))))
ORDER BY id LIMIT :limit {skip_locked}

-- name: shorten_leases
UPDATE runs SET leased_at = :now, lease_until = :until WHERE state = 'leased' AND lease_until > :latest

-- name: fold_runs(id text, planned_at bigint, last_of bigint, dropped bigint, previous text)
UPDATE runs SET planned_at = v.planned_at, last_of = v.last_of, dropped = v.dropped, previous = v.previous
{from}
WHERE runs.id = v.id AND runs.state = 'skipped'

-- name: delete_runs
DELETE FROM runs WHERE id {in:ids} AND state IN ('succeeded', 'failed', 'skipped', 'cancelled') RETURNING id

-- name: delete_attempts
DELETE FROM attempts WHERE run_id {in:ids}

-- name: put_attempt_output(run_id text, fence bigint, number bigint, at bigint, size bigint, tail_offset bigint, body text)
INSERT INTO attempt_output (run_id, fence, number, at, size, tail_offset, body)
{values}
ON CONFLICT (run_id, fence) DO UPDATE SET at = excluded.at, size = excluded.size,
    tail_offset = excluded.tail_offset, body = excluded.body

-- name: get_attempt_output
SELECT run_id, fence, number, at, size, tail_offset, body FROM attempt_output WHERE run_id {in:ids}
    ORDER BY run_id, fence

-- name: delete_attempt_output(run_id text, fence bigint)
DELETE FROM attempt_output WHERE (run_id, fence) IN ({values})

-- name: delete_output_of_runs
DELETE FROM attempt_output WHERE run_id {in:ids}

-- name: put_run_progress(run_id text, fence bigint, at bigint, fraction float8, note text, checkpoint text)
-- Only the attempt that holds the lease may write. Without a new checkpoint the last one stays, also that of an earlier
-- attempt.
INSERT INTO run_progress (run_id, fence, at, fraction, note, checkpoint)
SELECT v.run_id, v.fence, v.at, v.fraction, v.note, v.checkpoint
{from}
WHERE EXISTS (SELECT 1 FROM runs WHERE runs.id = v.run_id AND runs.fence = v.fence AND runs.state || '' = 'leased')
ON CONFLICT (run_id) DO UPDATE SET fence = excluded.fence, at = excluded.at, fraction = excluded.fraction,
    note = excluded.note,
    checkpoint = CASE WHEN excluded.checkpoint <> '' THEN excluded.checkpoint ELSE run_progress.checkpoint END

-- name: get_run_progress
SELECT run_id, fence, at, fraction, note, checkpoint FROM run_progress WHERE run_id {in:ids}

-- name: delete_run_progress
DELETE FROM run_progress WHERE run_id {in:ids}

-- name: add_artifacts(run_id text, fence bigint, name text, size bigint, digest text, media_type text)
INSERT INTO artifacts (run_id, fence, name, size, digest, media_type)
{values}
ON CONFLICT (run_id, fence, name) DO NOTHING

-- name: artifacts_of_runs
SELECT run_id, fence, name, size, digest, media_type FROM artifacts WHERE run_id {in:ids}
ORDER BY run_id, fence, name

-- name: runs_with_artifacts
SELECT {run} FROM runs WHERE id IN (SELECT DISTINCT run_id FROM artifacts WHERE run_id > :after
    ORDER BY run_id LIMIT :limit)
ORDER BY id

-- name: delete_artifacts
DELETE FROM artifacts WHERE run_id {in:ids}

-- name: put_external_ids(run_id text, fence bigint, external_id text)
INSERT INTO external_ids (run_id, fence, external_id)
{values}
ON CONFLICT (run_id, fence) DO UPDATE SET external_id = excluded.external_id

-- name: external_ids_of_runs
SELECT run_id, fence, external_id FROM external_ids WHERE run_id {in:ids} ORDER BY run_id, fence

-- name: runs_by_external_id
SELECT {run} FROM runs WHERE id IN (SELECT run_id FROM external_ids WHERE external_id = :external_id
    ORDER BY run_id LIMIT :limit)
ORDER BY id

-- name: delete_external_ids
DELETE FROM external_ids WHERE run_id {in:ids}

-- name: nth_newest_run
SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET :offset

-- name: store_bytes [sqlite]
SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)
    - (SELECT freelist_count FROM pragma_freelist_count) * (SELECT page_size FROM pragma_page_size)

-- name: store_bytes [postgres]
-- The size of the rows, not of the tables: tables do not shrink on DELETE, and pruning would never stop.
SELECT (SELECT count(*) FROM runs)
    * (SELECT coalesce(avg(w.width), 0) FROM
        (SELECT pg_column_size(r) AS width FROM runs r ORDER BY r.id DESC LIMIT 1000) w)
    + (SELECT count(*) FROM attempts)
    * (SELECT coalesce(avg(w.width), 0) FROM
        (SELECT pg_column_size(a) AS width FROM attempts a ORDER BY a.run_id DESC LIMIT 1000) w)

-- name: read_limits
SELECT limit_key, capacity, rate_interval, burst, arrival_at, weight, share_used FROM limits WHERE limit_key {in:keys} ORDER BY limit_key

-- Pages of raw rows for `timewright verify`.

-- name: verify_schedules
SELECT id, namespace, name, revision, state, reason, cursor_at, next_at, wake_at, source, trail, failures,
    runs, missed, paused_at, paused_until, last_started_at, last_finished_at, hints, last_run, replaced_after
FROM schedules WHERE id > :after AND (:namespace = '' OR namespace = :namespace) ORDER BY id LIMIT :limit

-- name: verify_revisions
SELECT r.schedule_id, r.revision, r.body, r.at, r.actor, r.reason
FROM revisions r JOIN schedules s ON s.id = r.schedule_id
WHERE (r.schedule_id, r.revision) > (:after, :after_revision) AND (:namespace = '' OR s.namespace = :namespace)
ORDER BY r.schedule_id, r.revision LIMIT :limit

-- name: verify_runs
SELECT {run} FROM runs
WHERE id < :before AND id >= :first AND (:namespace = '' OR namespace = :namespace)
ORDER BY id DESC LIMIT :limit

-- name: verify_unfinished_runs
-- One branch per partial index of unfinished runs. `id || ''` keeps SQLite from scanning all history by the
-- primary key.
SELECT {run} FROM runs
WHERE id IN (
    SELECT u.id FROM (
        SELECT id FROM runs WHERE state = 'ready' AND deferred = 0
        UNION ALL SELECT id FROM runs WHERE state = 'ready' AND deferred = 1
        UNION ALL SELECT id FROM runs WHERE state = 'leased'
        UNION ALL SELECT id FROM runs WHERE state = 'held'
        UNION ALL SELECT id FROM runs WHERE state = 'parked'
    ) u
    WHERE u.id || '' > :after AND u.id || '' < :first
) AND (:namespace = '' OR namespace = :namespace)
ORDER BY id
LIMIT :limit

-- name: verify_attempts
SELECT run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at, outcome, charged,
    CASE WHEN outcome = 'lost' THEN error ELSE '' END, length(result) + length(error)
FROM attempts WHERE run_id {in:ids} ORDER BY run_id, fence

-- name: verify_limits
SELECT limit_key, capacity FROM limits WHERE limit_key > :after ORDER BY limit_key LIMIT :limit

-- name: verify_limit_holds
SELECT limit_key, run_id, fence FROM limit_holds WHERE (limit_key, run_id) > (:after, :after_run)
    ORDER BY limit_key, run_id LIMIT :limit

-- name: verify_objects
SELECT kind, namespace, name, revision, body, at FROM objects
WHERE (kind, namespace, name) > (:after_kind, :after_namespace, :after_name)
    AND kind IN ('queue', 'limit', 'calendar', 'instance', 'offer', 'workflow_version')
    AND (:namespace = '' OR namespace = :namespace OR kind IN ('instance', 'offer'))
ORDER BY kind, namespace, name LIMIT :limit

-- name: verify_accounts
SELECT budget, period, used, held FROM budget_accounts WHERE (budget, period) > (:after, :after_period)
ORDER BY budget, period LIMIT :limit

-- name: verify_charges
SELECT run_id, fence, budget, period, used, held, open FROM budget_charges
WHERE (run_id, fence, budget) > (:after, :after_fence, :after_budget)
ORDER BY run_id, fence, budget LIMIT :limit

-- name: verify_adjustments
SELECT schedule_id, seq, namespace, kind, at, cursor_at, until, planned_at, moved_to, hinted_interval, actor, origin, reason
FROM adjustments
WHERE (schedule_id, seq) > (:after, :after_seq) AND (:namespace = '' OR namespace = :namespace)
ORDER BY schedule_id, seq LIMIT :limit

-- name: verify_audit
SELECT seq, at, namespace, actor, origin, action, subject, before, after, reason FROM audit
WHERE seq < :before AND at >= :since AND (:namespace = '' OR namespace = :namespace) ORDER BY seq DESC LIMIT :limit

-- name: verify_meta
SELECT name, value FROM meta WHERE name > :after ORDER BY name LIMIT :limit

-- name: count_live
-- Each kind is counted in its partial index, up to :max_rows rows. Each ORDER BY is that of the index, so that the
-- planner uses it whatever the statistics say.
SELECT namespace, queue, kind, sum(number) FROM (
    SELECT namespace, queue, 'ready' AS kind, 1 AS number FROM
        (SELECT namespace, queue FROM runs WHERE state = 'ready' AND deferred = 0
            ORDER BY handoff, ready_bucket, priority, planned_at, id LIMIT :max_rows) a
    UNION ALL
    SELECT namespace, queue, 'waiting', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'ready' AND deferred = 1
        ORDER BY fire_at LIMIT :max_rows) b
    UNION ALL
    SELECT namespace, queue, 'leased', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'leased' ORDER BY leased_at LIMIT :max_rows) c
    UNION ALL
    SELECT namespace, queue, 'held', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'held' ORDER BY schedule_id, planned_at LIMIT :max_rows) d
    UNION ALL
    SELECT namespace, queue, 'parked', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'parked' ORDER BY planned_at LIMIT :max_rows) e
    UNION ALL
    SELECT namespace, '', 'due', 1 FROM
        (SELECT namespace FROM schedules WHERE wake_at IS NOT NULL AND wake_at <= :now
            ORDER BY wake_at LIMIT :max_rows) f
    UNION ALL
    SELECT namespace, '', 'parked_schedule', 1 FROM
        (SELECT namespace FROM schedules WHERE state = 'parked' ORDER BY namespace, name LIMIT :max_rows) g
    UNION ALL
    SELECT '', limit_key, 'capacity', capacity FROM (SELECT limit_key, capacity FROM limits
    ORDER BY limit_key LIMIT :max_rows) h
) counted
GROUP BY namespace, queue, kind
ORDER BY namespace, queue, kind

-- name: oldest_ready
-- The first run of each bucket and priority, one index lookup each; no other run of it is older.
WITH RECURSIVE firsts (id, step) AS (
    SELECT id, 1 FROM (SELECT id FROM runs WHERE state = 'ready' AND deferred = 0
        ORDER BY handoff, ready_bucket, priority, planned_at, id LIMIT 1) a
    UNION ALL
    SELECT (SELECT r.id FROM runs r WHERE r.state = 'ready' AND r.deferred = 0
            AND (r.handoff, r.ready_bucket, r.priority) > (b.handoff, b.ready_bucket, b.priority)
            ORDER BY r.handoff, r.ready_bucket, r.priority, r.planned_at, r.id LIMIT 1),
        firsts.step + 1
    FROM firsts JOIN runs b ON b.id = firsts.id WHERE firsts.step < :max_rows
)
SELECT runs.namespace, runs.queue, min(runs.fire_at) FROM firsts JOIN runs ON runs.id = firsts.id
GROUP BY runs.namespace, runs.queue

-- name: transfer_leases(id text, fence bigint, was text, holder text, started_at bigint, lease_until bigint, extra text)
-- Give a lease to another holder. The fence stays, so the result of the launched run is still accepted.
UPDATE runs SET holder = v.holder, started_at = v.started_at, lease_until = v.lease_until, extra = v.extra
{from}
WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence AND runs.holder = v.was
RETURNING runs.id

-- name: extend_lease
UPDATE runs SET lease_until = :until, started_at = coalesce(:started_at, started_at)
WHERE id = :id AND state = 'leased' AND cancel_at IS NULL
RETURNING id

-- name: lock_parents
SELECT parent, step, met, live, parked, failed, cancelled, round, state, run_id
FROM workflow_steps WHERE step = '' AND parent {in:ids} ORDER BY parent {lock}

-- name: add_to_steps(parent text, step text, met bigint, live bigint, parked bigint, failed bigint, cancelled bigint, round bigint, state text, run_id text)
INSERT INTO workflow_steps (parent, step, met, live, parked, failed, cancelled, round, state, run_id)
{values}
ON CONFLICT (parent, step) DO UPDATE SET met = workflow_steps.met + excluded.met,
    live = workflow_steps.live + excluded.live, parked = workflow_steps.parked + excluded.parked,
    failed = workflow_steps.failed + excluded.failed, cancelled = workflow_steps.cancelled + excluded.cancelled,
    round = workflow_steps.round + excluded.round,
    state = CASE WHEN excluded.state <> '' THEN excluded.state ELSE workflow_steps.state END,
    run_id = CASE WHEN excluded.run_id <> '' THEN excluded.run_id ELSE workflow_steps.run_id END
RETURNING parent, step, met, live, parked, failed, cancelled, round, state, run_id

-- name: get_steps
SELECT parent, step, met, live, parked, failed, cancelled, round, state, run_id
FROM workflow_steps WHERE parent = :parent AND step {in:steps}

-- name: get_all_steps
SELECT parent, step, met, live, parked, failed, cancelled, round, state, run_id FROM workflow_steps
    WHERE parent = :parent

-- name: delete_steps
DELETE FROM workflow_steps WHERE parent {in:ids}

-- name: child_runs
SELECT {run} FROM runs
WHERE parent = :parent AND parent <> '' AND (:unfinished = 0 OR state IN ('ready', 'held', 'leased', 'parked'))

-- name: find_runs_by_dedupe_scope
SELECT {run} FROM runs
WHERE planned_at = :planned_at AND schedule_id = '' AND dedupe_scope >= :first AND dedupe_scope < :last
    AND dedupe_scope <> id
ORDER BY dedupe_scope

-- name: runs_beside_occurrence
-- A backfill has a scope of its own; a run by hand has only its id, which begins with its instant.
SELECT {run} FROM runs
WHERE planned_at = :planned_at AND schedule_id = :schedule_id AND dedupe_scope <> '' AND dedupe_scope <> id
UNION ALL
SELECT {run} FROM runs
WHERE schedule_id = :schedule_id AND schedule_id <> '' AND dedupe_scope = id AND id >= :first AND id < :last
    AND planned_at = :planned_at

-- name: count_namespace
-- For quotas: schedules in use and runs that wait, each counted up to its maximum. Schedules in use are all minus the
-- archived and finished ones, because both numbers come from indexes alone.
WITH past (many) AS (SELECT count(*) FROM schedules
    WHERE state <> 'active' AND state IN ('archived', 'finished') AND namespace = :namespace)
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM schedules
        WHERE namespace = :namespace LIMIT :max_schedules + (SELECT many FROM past)) a)
        - (SELECT many FROM past),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 0 AND namespace = :namespace
        UNION ALL
        SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 1 AND namespace = :namespace
        UNION ALL
        SELECT 1 FROM runs WHERE state = 'held' AND namespace = :namespace
        LIMIT :max_runs) b)

-- name: newest_objects
SELECT kind, namespace, name, revision, body, at FROM objects
WHERE kind = :kind AND namespace = :namespace AND name < :before
ORDER BY name DESC LIMIT :limit

-- name: prune_objects
-- Names of these kinds rise with time, so only the first ones are read.
DELETE FROM objects WHERE kind = :kind AND namespace = :namespace AND at < :older AND name IN (
    SELECT name FROM objects WHERE kind = :kind AND namespace = :namespace ORDER BY name LIMIT :limit)
RETURNING name

-- name: next_schedules
SELECT id, name, revision, state FROM schedules
WHERE wake_at IS NOT NULL AND wake_at <= :until AND namespace = :namespace
ORDER BY wake_at, id
LIMIT :limit

-- name: list_groups
SELECT group_name, count(*), count(CASE WHEN state = 'active' THEN 1 END),
    count(CASE WHEN state = 'paused' THEN 1 END),
    count(CASE WHEN state = 'parked' THEN 1 END)
FROM schedules
WHERE namespace = :namespace AND group_name > :after AND state <> 'archived'
GROUP BY group_name
ORDER BY group_name
LIMIT :limit

-- name: count_runs_by_state
-- Each state is counted in its own index, up to :max_count rows.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'leased' AND namespace = :namespace LIMIT :max_count) AS a),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 0 AND namespace = :namespace
        UNION ALL
        SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 1
        AND namespace = :namespace LIMIT :max_count) AS b),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'failed' AND id >= :from AND namespace = :namespace
        AND planned_at >= :since
        LIMIT :max_count) AS c),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'parked' AND namespace = :namespace LIMIT :max_count) AS d)

-- name: count_finished_runs
-- The runs that ended in a range of time by minute, result and delay of the first start. A delay is rounded up to a
-- bound, because percentiles are read from the counts. A retry moves fire_at and started_at, so the delay of a retried
-- run is that of its first start.
SELECT namespace, planned_at / 60000000 * 60000000, finished_at / 60000000 * 60000000,
    CASE WHEN state = 'skipped' AND reason IN ('missed', 'deadline') THEN 'missed' ELSE state END,
    {delay_bound}, count(*), max(delay)
FROM (SELECT namespace, planned_at, finished_at, state, reason,
        CASE WHEN fence > 1 THEN coalesce(
            (SELECT min(a.started_at) FROM attempts a WHERE a.run_id = runs.id), started_at) - planned_at
        ELSE started_at - fire_at END AS delay
    FROM runs WHERE finished_at >= :since AND finished_at < :until) AS ended
GROUP BY 1, 2, 3, 4, 5

-- name: nth_finished_run
-- When the run ended that is :offset rows after an instant.
SELECT finished_at FROM runs WHERE finished_at >= :since ORDER BY finished_at LIMIT 1 OFFSET :offset

-- name: claim_run_counts
-- Move the end of what is counted, unless another instance has moved it.
INSERT INTO meta (name, value) VALUES ('runs_counted_until', :until)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.value = :was
RETURNING value

-- name: delete_run_counts
DELETE FROM run_counts WHERE finished_minute >= :since AND finished_minute < :until

-- name: insert_run_counts(namespace text, planned_minute bigint, finished_minute bigint, succeeded bigint, failed bigint, parked bigint, cancelled bigint, skipped bigint, missed bigint, started bigint, delay_max bigint, delays text)
INSERT INTO run_counts (namespace, planned_minute, finished_minute, succeeded, failed, parked, cancelled, skipped,
    missed, started, delay_max, delays)
{values}

-- name: read_run_counts
SELECT namespace, planned_minute, finished_minute, succeeded, failed, parked, cancelled, skipped, missed, started, delay_max, delays
FROM run_counts WHERE namespace = :namespace AND planned_minute >= :since AND planned_minute < :until

-- name: request_recounts
-- What is not counted yet needs no second count.
INSERT INTO run_recounts (finished_minute)
SELECT DISTINCT finished_at / 60000000 * 60000000 FROM runs WHERE id {in:ids} AND finished_at <
    (SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'runs_counted_until')

-- name: get_recounts
SELECT id, finished_minute FROM run_recounts ORDER BY id LIMIT :limit

-- name: delete_recounts(id bigint)
DELETE FROM run_recounts WHERE id IN ({values})

-- name: ordered_schedules
SELECT id, name, revision, state FROM schedules
WHERE namespace = :namespace AND (state = :state OR (:state = '' AND state <> 'archived'))
    AND (:group_name = '' OR group_name = :group_name) AND lower(name) LIKE :pattern ESCAPE '\'
ORDER BY CASE :order
    WHEN 'failing' THEN CASE WHEN failures > 0 OR state = 'parked' THEN 0 ELSE 1 END
    WHEN 'next' THEN CASE WHEN state = 'active' THEN coalesce(next_at, 9000000000000000000) ELSE 9100000000000000000 END
    WHEN 'runs' THEN -runs - (SELECT count(*) FROM runs m
        WHERE m.schedule_id = schedules.id AND m.schedule_id <> '' AND m.dedupe_scope = m.id)
    ELSE 0 END, CASE WHEN :order = 'last' THEN coalesce((SELECT max(m.id) FROM runs m
        WHERE m.schedule_id = schedules.id AND m.schedule_id <> '' AND m.dedupe_scope = m.id
            AND m.id > schedules.last_run), last_run) ELSE '' END DESC, name
LIMIT :limit OFFSET :offset

-- name: count_schedules
SELECT count(*) FROM schedules
WHERE namespace = :namespace AND (state = :state OR (:state = '' AND state <> 'archived'))
    AND (:group_name = '' OR group_name = :group_name) AND lower(name) LIKE :pattern ESCAPE '\'

-- name: search_schedules
-- Schedules with a text in their name or id; names that begin with it come first.
SELECT id, name, state FROM schedules
WHERE namespace = :namespace AND state <> 'archived'
    AND (lower(name) LIKE :pattern ESCAPE '\' OR lower(id) LIKE :pattern ESCAPE '\')
ORDER BY CASE WHEN lower(name) LIKE :begins ESCAPE '\' THEN 0 ELSE 1 END, name LIMIT :limit

-- name: search_tags
-- Schedules whose definition may have a text among its tags.
SELECT s.id, s.name, s.state FROM schedules s
JOIN revisions r ON r.schedule_id = s.id AND r.revision = s.revision
WHERE s.namespace = :namespace AND s.state <> 'archived' AND lower(r.body) LIKE :pattern ESCAPE '\'
ORDER BY s.name LIMIT :limit

-- name: search_runs
-- Runs with a text in their id or error: among the newest runs, the newest failed ones, and the newest parked ones.
SELECT id, state, schedule_id, error FROM (
    SELECT id, namespace, state, schedule_id, error FROM (
        SELECT id, namespace, state, schedule_id, '' AS error FROM runs ORDER BY id DESC LIMIT :max_rows) AS newest
    WHERE lower(id) LIKE :pattern ESCAPE '\'
    UNION ALL
    SELECT id, namespace, state, schedule_id, error FROM (
        SELECT id, namespace, state, schedule_id, error FROM runs WHERE state = 'failed'
        ORDER BY id DESC LIMIT :max_rows) AS failed
    WHERE lower(error) LIKE :pattern ESCAPE '\'
    UNION ALL
    SELECT id, namespace, state, schedule_id, error FROM (
        SELECT id, namespace, state, schedule_id, error FROM runs WHERE state = 'parked'
        ORDER BY planned_at DESC LIMIT :max_rows) AS parked
    WHERE lower(error) LIKE :pattern ESCAPE '\'
) AS found WHERE namespace = :namespace ORDER BY id DESC LIMIT :limit

-- name: recent_runs
-- The histories of several schedules, each from its newest run back.
WITH RECURSIVE walk (schedule_id, id, step) AS (
    SELECT s.id, s.last_run, 1 FROM schedules s WHERE s.id {in:ids} AND s.last_run <> ''
    UNION ALL
    SELECT walk.schedule_id, r.previous, walk.step + 1 FROM walk JOIN runs r ON r.id = walk.id
    WHERE r.previous <> '' AND walk.step < :limit_each AND r.id >= :from
)
SELECT runs.id, walk.schedule_id, runs.planned_at, {first_start}, runs.finished_at, runs.state, runs.reason, runs.dropped
FROM walk JOIN runs ON runs.id = walk.id ORDER BY walk.schedule_id, walk.step

-- name: recent_manual_runs(schedule_id text, first text, row_limit bigint) [sqlite]
SELECT id, schedule_id, planned_at, {first_start}, finished_at, state, reason, dropped FROM runs
WHERE schedule_id = v.schedule_id AND schedule_id <> '' AND dedupe_scope = id AND id >= v.first
ORDER BY id DESC LIMIT v.row_limit

-- name: recent_manual_runs(schedule_id text, first text, row_limit bigint) [postgres]
SELECT newest.id, newest.schedule_id, newest.planned_at, newest.first_start, newest.finished_at, newest.state,
    newest.reason, newest.dropped
{from} CROSS JOIN LATERAL (
    SELECT id, schedule_id, planned_at, {first_start} AS first_start, finished_at, state, reason, dropped FROM runs
    WHERE schedule_id = v.schedule_id AND schedule_id <> '' AND dedupe_scope = id AND id >= v.first
    ORDER BY id DESC LIMIT v.row_limit) newest

-- name: list_ready_runs [sqlite]
-- Deferred runs and runs that may start now have an index each.
SELECT {run} FROM runs WHERE id IN (
    SELECT id FROM runs WHERE state = 'ready' AND deferred = 0
    UNION ALL
    SELECT id FROM runs WHERE state = 'ready' AND deferred = 1
) AND id < :before AND id >= :from AND (:namespace = '' OR namespace = :namespace)
    AND (:queue = '' OR queue = :queue) AND planned_at >= :since AND planned_at <= :until
ORDER BY id DESC
LIMIT :limit

-- name: list_ready_runs [postgres]
-- No subquery for the ids: without statistics PostgreSQL would scan the table for each.
SELECT {run} FROM runs
WHERE state = 'ready' AND deferred = 0 AND id || '' < :before AND id || '' >= :from
    AND (:namespace = '' OR namespace = :namespace) AND (:queue = '' OR queue = :queue)
    AND +planned_at >= :since AND +planned_at <= :until
UNION ALL
SELECT {run} FROM runs
WHERE state = 'ready' AND deferred = 1 AND id || '' < :before AND id || '' >= :from
    AND (:namespace = '' OR namespace = :namespace) AND (:queue = '' OR queue = :queue)
    AND +planned_at >= :since AND +planned_at <= :until
ORDER BY 1 DESC
LIMIT :limit

-- name: list_leased_runs
-- `id || ''` and `+planned_at` keep the planner on the partial index of the state: live runs are few.
SELECT {run} FROM runs
WHERE state = 'leased' AND id || '' < :before AND id || '' >= :from AND (:namespace = '' OR namespace = :namespace)
    AND (:queue = '' OR queue = :queue) AND +planned_at >= :since AND +planned_at <= :until
ORDER BY id || '' DESC
LIMIT :limit

-- name: list_held_runs
SELECT {run} FROM runs
WHERE state = 'held' AND id || '' < :before AND id || '' >= :from AND (:namespace = '' OR namespace = :namespace)
    AND (:queue = '' OR queue = :queue) AND +planned_at >= :since AND +planned_at <= :until
ORDER BY id || '' DESC
LIMIT :limit

-- name: list_parked_runs
SELECT {run} FROM runs
WHERE state = 'parked' AND id || '' < :before AND id || '' >= :from AND (:namespace = '' OR namespace = :namespace)
    AND (:queue = '' OR queue = :queue) AND planned_at >= :since AND planned_at <= :until
ORDER BY id || '' DESC
LIMIT :limit

-- name: list_failed_runs
-- The subquery is answered by the index alone; only the rows of the page are read.
SELECT {run} FROM runs WHERE id IN (
    SELECT id FROM runs
    WHERE state = 'failed' AND id < :before AND id >= :from AND (:namespace = '' OR namespace = :namespace)
        AND (:queue = '' OR queue = :queue) AND planned_at >= :since AND planned_at <= :until
    ORDER BY id DESC LIMIT :limit
)
ORDER BY id DESC

-- name: find_inactive_schedules
-- Schedules that are not active are few and have their own index.
SELECT {schedule}, s.namespace, s.name
FROM schedules s
WHERE s.state <> 'active' AND s.state = :state AND (s.namespace, s.name) > (:after_namespace, :after_name)
    AND s.namespace >= :first_namespace AND s.namespace <= :last_namespace
    AND (:group_name = '' OR s.group_name = :group_name)
    AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
ORDER BY s.namespace, s.name
LIMIT :limit

-- name: delete_links
DELETE FROM schedule_links WHERE downstream = :downstream

-- name: insert_links(upstream text, downstream text, kind text, outcome text, delay bigint, met_at bigint, met_by text)
INSERT INTO schedule_links (upstream, downstream, kind, outcome, delay, met_at, met_by)
{values}

-- name: upstream_links
SELECT upstream, downstream, kind, outcome, delay, met_at, met_by FROM schedule_links
WHERE downstream {in:downstreams} ORDER BY upstream, downstream, kind, outcome

-- name: lock_upstream_links
-- The run that waits for an end and the run that ends lock the same row, so neither misses the other.
SELECT upstream, downstream, kind, outcome, delay, met_at, met_by FROM schedule_links
WHERE downstream {in:downstreams} ORDER BY upstream, downstream, kind, outcome {lock}

-- name: downstream_links
SELECT upstream, downstream, kind, outcome, delay, met_at, met_by FROM schedule_links
WHERE upstream {in:upstreams} ORDER BY upstream, downstream, kind, outcome

-- name: mark_links_met(upstream text, downstream text, kind text, outcome text, met_at bigint, met_by text)
UPDATE schedule_links SET met_at = v.met_at, met_by = v.met_by
{from}
WHERE schedule_links.upstream = v.upstream AND schedule_links.downstream = v.downstream
    AND schedule_links.kind = v.kind
    AND schedule_links.outcome = v.outcome AND (schedule_links.met_at IS NULL OR schedule_links.met_at <= v.met_at)

-- name: insert_follow_ups(downstream text, upstream_run text, upstream text, outcome text, due_at bigint)
-- One upstream run makes one downstream occurrence, however often it is retried.
INSERT INTO follow_ups (downstream, upstream_run, upstream, outcome, due_at)
{values}
ON CONFLICT (downstream, upstream_run) DO NOTHING

-- name: wake_schedules(id text, at bigint)
UPDATE schedules SET
    next_at = CASE WHEN schedules.state = 'active' AND schedules.source <> 'paused'
        AND (schedules.next_at IS NULL OR schedules.next_at > v.at) THEN v.at ELSE schedules.next_at END,
    source = CASE WHEN schedules.state = 'active' AND schedules.source <> 'paused'
        AND (schedules.next_at IS NULL OR schedules.next_at > v.at) THEN 'baseline-after' ELSE schedules.source END,
    wake_at = CASE WHEN schedules.wake_at IS NULL OR schedules.wake_at > v.at THEN v.at ELSE schedules.wake_at END
{from}
WHERE schedules.id = v.id

-- name: get_open_follow_ups(downstream text, row_limit bigint) [sqlite]
SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
WHERE state = 'open' AND downstream = v.downstream ORDER BY due_at, upstream_run LIMIT v.row_limit

-- name: get_open_follow_ups(downstream text, row_limit bigint) [postgres]
-- The earliest of each schedule, so that one with very many does not crowd out the others.
SELECT f.downstream, f.upstream_run, f.upstream, f.outcome, f.due_at, f.state, f.run_id
{from} CROSS JOIN LATERAL (
    SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
    WHERE state = 'open' AND downstream = v.downstream ORDER BY due_at, upstream_run LIMIT v.row_limit
) f
ORDER BY f.due_at, f.upstream_run

-- name: close_follow_ups(downstream text, upstream_run text, state text, run_id text)
UPDATE follow_ups SET state = v.state, run_id = v.run_id
{from}
WHERE follow_ups.downstream = v.downstream AND follow_ups.upstream_run = v.upstream_run

-- name: delete_open_follow_ups
DELETE FROM follow_ups WHERE downstream = :downstream AND state = 'open'

-- name: find_follow_ups
SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
WHERE run_id <> '' AND run_id = :run_id
UNION
SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
WHERE upstream_run = :run_id
ORDER BY due_at, downstream, upstream_run

-- name: delete_decided_follow_ups
-- Delete decided follow-ups of runs that are pruned; those runs cannot be retried any more.
DELETE FROM follow_ups WHERE upstream_run {in:ids} AND state <> 'open'

-- name: insert_dependency_waits(run_id text, schedule_id text)
INSERT INTO dependency_waits (run_id, schedule_id) {values} ON CONFLICT (run_id) DO NOTHING

-- name: runs_with_needs
SELECT {run} FROM runs WHERE id IN (SELECT run_id FROM dependency_waits WHERE schedule_id {in:schedule_ids}) ORDER BY id

-- name: delete_dependency_waits
DELETE FROM dependency_waits WHERE run_id {in:ids}

-- name: budgets_version
SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'budgets'

-- name: lock_budgets
INSERT INTO meta (name, value) VALUES ('budgets', '0') ON CONFLICT (name) DO UPDATE SET value = meta.value

-- name: get_budgets
SELECT kind, namespace, name, body FROM objects WHERE kind IN ('budget', 'provider') ORDER BY kind, namespace, name

-- name: ensure_accounts(budget text, period bigint)
INSERT INTO budget_accounts (budget, period) {values} ON CONFLICT (budget, period) DO NOTHING

-- name: lock_accounts
SELECT budget, period, used, held FROM budget_accounts WHERE budget {in:budgets} AND period >= :since
ORDER BY budget, period {lock}

-- name: read_accounts
SELECT budget, period, used, held FROM budget_accounts WHERE budget {in:budgets} AND period >= :since
ORDER BY budget, period

-- name: add_to_accounts(budget text, period bigint, used bigint, held bigint)
INSERT INTO budget_accounts (budget, period, used, held)
{values}
ON CONFLICT (budget, period) DO UPDATE SET used = budget_accounts.used + excluded.used,
    held = budget_accounts.held + excluded.held

-- name: insert_charges(run_id text, fence bigint, budget text, period bigint, at bigint, used bigint, held bigint, open bigint)
INSERT INTO budget_charges (run_id, fence, budget, period, at, used, held, open)
{values}

-- name: get_charges
SELECT run_id, fence, budget, period, at, used, held, open FROM budget_charges
WHERE run_id {in:ids} ORDER BY run_id, fence, budget

-- name: close_charges(run_id text, fence bigint, budget text, used bigint)
UPDATE budget_charges SET used = v.used, held = 0, open = 0
{from}
WHERE budget_charges.run_id = v.run_id AND budget_charges.fence = v.fence AND budget_charges.budget = v.budget

-- name: delete_charges
DELETE FROM budget_charges WHERE run_id {in:ids}

-- name: subtract_recounted
-- The budget's period changed: subtract what was charged since the new period began from the old accounts.
UPDATE budget_accounts SET
    used = used - coalesce((SELECT sum(c.used) FROM budget_charges c
        WHERE c.budget = budget_accounts.budget AND c.period = budget_accounts.period AND c.at >= :period), 0),
    held = held - coalesce((SELECT sum(c.held) FROM budget_charges c
        WHERE c.budget = budget_accounts.budget AND c.period = budget_accounts.period AND c.at >= :period), 0)
WHERE budget = :budget

-- name: add_recounted
INSERT INTO budget_accounts (budget, period, used, held)
SELECT :budget, :period, coalesce(sum(used), 0), coalesce(sum(held), 0) FROM budget_charges
WHERE budget = :budget AND at >= :period
ON CONFLICT (budget, period) DO UPDATE SET used = budget_accounts.used + excluded.used,
    held = budget_accounts.held + excluded.held

-- name: move_charges
UPDATE budget_charges SET period = :period WHERE budget = :budget AND at >= :period

-- name: delete_charges_of_budget
DELETE FROM budget_charges WHERE budget = :budget

-- name: delete_accounts_of_budget
DELETE FROM budget_accounts WHERE budget = :budget

-- name: list_accounts
SELECT period, used, held FROM budget_accounts WHERE budget = :budget AND (used > 0 OR held > 0)
ORDER BY period DESC LIMIT :limit

-- name: count_deferred_runs
SELECT count(*) FROM runs WHERE state = 'ready' AND deferred = 1 AND namespace = :namespace
    AND substr(reason, 1, length(:prefix)) = :prefix

-- name: release_deferred_runs
-- Runs deferred for this reason may start at once.
UPDATE runs SET deferred = 0, fire_at = :now, reason = ''
WHERE id IN (SELECT id FROM runs WHERE state = 'ready' AND deferred = 1 AND namespace = :namespace
    AND substr(reason, 1, length(:prefix)) = :prefix)
RETURNING id

-- name: release_paused_runs
UPDATE runs SET deferred = 0, fire_at = :now, reason = ''
WHERE id IN (SELECT id FROM runs WHERE state = 'ready' AND deferred = 1 AND substr(reason, 1, length(:prefix)) = :prefix)
RETURNING id

-- name: future_manual_runs
SELECT {run} FROM runs
WHERE state = 'ready' AND deferred = 1 AND dedupe_scope <> '' AND schedule_id {in:schedule_ids}
ORDER BY fire_at, id
LIMIT :limit

-- name: future_manual_runs_of_namespace
-- With an expression of fire_at the index by schedule is used: the other one also has retries and queue entries.
SELECT {run} FROM runs
WHERE state = 'ready' AND deferred = 1 AND dedupe_scope <> '' AND schedule_id > '' AND namespace = :namespace
    AND fire_at + 0 <= :until
ORDER BY fire_at + 0, id
LIMIT :limit

-- name: claim_alert_check
-- Take the right to look for incidents, unless another instance looked after :before. Instants have 16 digits.
INSERT INTO meta (name, value) VALUES ('alerts_checked_at', :now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.value <= :before
RETURNING value

-- name: alert_rows
-- Everything that incidents are decided from, each kind from its own index and at most :max_rows rows of it.
SELECT 'failing' AS source, namespace, id AS subject, name, group_name, failures AS number,
    coalesce(last_finished_at, 0) AS at, state AS extra FROM
    (SELECT namespace, id, name, group_name, failures, last_finished_at, state FROM schedules WHERE failures > 0 ORDER BY id LIMIT :max_rows) a
UNION ALL
SELECT 'parked_schedule', namespace, id, name, group_name, failures, coalesce(last_finished_at, 0), reason FROM
    (SELECT namespace, id, name, group_name, failures, last_finished_at, reason FROM schedules WHERE state = 'parked' ORDER BY namespace, name LIMIT :max_rows) b
UNION ALL
SELECT 'late', namespace, id, name, group_name, 0, wake_at, waits_for FROM
    (SELECT namespace, id, name, group_name, wake_at, waits_for FROM schedules WHERE wake_at IS NOT NULL AND wake_at < :late ORDER BY wake_at LIMIT :max_rows) c
UNION ALL
SELECT 'watched', namespace, id, name, group_name, 0, coalesce(next_at, 0), state FROM
    (SELECT namespace, id, name, group_name, next_at, state FROM schedules WHERE watched = 1 ORDER BY id LIMIT :max_rows) d
UNION ALL
SELECT 'parked_run', namespace, schedule_id, queue, '', count(*), min(parked_at), max(id) FROM
    (SELECT namespace, schedule_id, queue, coalesce(finished_at, planned_at) AS parked_at, id FROM runs WHERE state = 'parked' ORDER BY planned_at LIMIT :max_rows) e
GROUP BY namespace, schedule_id, queue
UNION ALL
SELECT 'ready', namespace, schedule_id, queue, '', count(*), min(fire_at), min(id) FROM
    (SELECT namespace, schedule_id, queue, fire_at, id FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 0
        ORDER BY handoff, ready_bucket, priority, planned_at, id LIMIT :max_rows) f
WHERE fire_at < :late GROUP BY namespace, schedule_id, queue
UNION ALL
SELECT 'handoff', namespace, '', queue, '', count(*), min(fire_at), min(id) FROM
    (SELECT namespace, queue, fire_at, id FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 1
        ORDER BY handoff, ready_bucket, priority, planned_at, id LIMIT :max_rows) g
WHERE fire_at < :late AND queue <> '' GROUP BY namespace, queue
UNION ALL
SELECT 'missed', namespace, schedule_id, '', '', sum(CASE WHEN dropped > 0 THEN dropped ELSE 1 END),
    max(finished_at), max(id) FROM
    (SELECT namespace, schedule_id, dropped, finished_at, id FROM runs WHERE state = 'skipped' AND reason IN ('missed', 'deadline') AND finished_at > :missed
        ORDER BY finished_at DESC LIMIT :max_rows) h
GROUP BY namespace, schedule_id
UNION ALL
SELECT 'budget', namespace, '', reason, '', count(*), min(planned_at), min(id) FROM
    (SELECT namespace, reason, planned_at, id FROM runs WHERE state = 'ready' AND deferred = 1 ORDER BY fire_at LIMIT :max_rows) i
WHERE substr(reason, 1, 8) = 'budget: ' GROUP BY namespace, reason
UNION ALL
SELECT kind, namespace, name, '', '', 0, at, body FROM
    (SELECT kind, namespace, name, at, body FROM objects WHERE kind IN ('alerts', 'instance', 'key') ORDER BY kind, namespace, name LIMIT :max_rows) j
UNION ALL
SELECT 'incident', namespace, id, kind, '', 0, opened_at, body FROM
    (SELECT namespace, id, kind, opened_at, body FROM incidents WHERE closed_at IS NULL ORDER BY namespace, kind, subject LIMIT :max_rows) k
UNION ALL
SELECT 'incident', namespace, id, kind, '', 0, opened_at, body FROM
    (SELECT namespace, id, kind, opened_at, body FROM incidents WHERE closed_at IS NOT NULL AND closed_at > :recent
        ORDER BY closed_at DESC LIMIT :max_rows) l
UNION ALL
SELECT 'pause', namespace, scope, name, origin, CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END, at, reason FROM
    (SELECT namespace, scope, name, origin, ended_at, at, reason FROM pauses WHERE (ended_at IS NULL OR ended_at > :late)
        AND (until IS NULL OR until > :late) ORDER BY at, id LIMIT :max_rows) m

-- name: insert_incidents(id text, namespace text, kind text, subject text, opened_at bigint, closed_at bigint, body text)
INSERT INTO incidents (id, namespace, kind, subject, opened_at, closed_at, body)
{values}

-- name: update_incidents(id text, closed_at bigint, body text)
-- A closed incident stays closed.
UPDATE incidents SET closed_at = v.closed_at, body = v.body
{from}
WHERE incidents.id = v.id AND incidents.closed_at IS NULL
{changed:incidents}

-- name: list_incidents
SELECT body FROM incidents
WHERE id < :before AND (:id = '' OR id = :id) AND (:namespace = '' OR namespace = :namespace)
    AND (:open = 0 OR closed_at IS NULL)
ORDER BY id DESC LIMIT :limit

-- name: verify_incidents
SELECT id, namespace, kind, subject, opened_at, closed_at FROM incidents
WHERE id > :after AND (:namespace = '' OR namespace = :namespace) ORDER BY id LIMIT :limit

-- name: verify_pauses
SELECT id, scope, namespace, name, at, until, ended_at, origin FROM pauses
WHERE id > :after AND (:namespace = '' OR namespace = '' OR namespace = :namespace) ORDER BY id LIMIT :limit

-- name: delete_incidents
DELETE FROM incidents WHERE closed_at IS NOT NULL AND closed_at < :before
