-- The book: every statement of the store, named, once.
--
-- `-- name: x` begins a statement; `-- name: x(a text, b bigint)` one that is given many rows, whose
-- columns are then spoken of as v.a, v.b. `[sqlite]` or `[postgres]` marks the few that differ.
-- {in:ids} is "one of the list"; {from} and {values} bring the rows; {lock} and {skip_locked} hold them;
-- {kept:runs} gives back the ids of the rows that took effect, the id being the first column.
-- A star marks the columns in which the rows of a batch differ. Rows that differ in nothing else are brought
-- together on SQLite, where `x_kept` says who took effect if not all did; PostgreSQL is told the rest once.

-- name: insert_schedules(id text, namespace text, name text, grouped text, revision bigint, state text, reason text, decided_to bigint, next_at bigint, wake_at bigint, source text, trail text, failures bigint, runs bigint, missed bigint, paused_at bigint, paused_until bigint, last_started_at bigint, last_finished_at bigint, hints text, shard bigint)
INSERT INTO schedules (id, namespace, name, grouped, revision, state, reason, decided_to, next_at, wake_at, source,
    trail, failures, runs, missed, paused_at, paused_until, last_started_at, last_finished_at, hints, shard)
{values}

-- name: revise_schedules(id text, replaces bigint, name text, grouped text, revision bigint, state text, reason text, decided_to bigint, next_at bigint, wake_at bigint, source text, trail text, failures bigint, runs bigint, missed bigint, paused_at bigint, paused_until bigint, last_started_at bigint, last_finished_at bigint, hints text)
-- The revision that is replaced is named, so a stale edit matches no row.
UPDATE schedules SET name = v.name, grouped = v.grouped, revision = v.revision, state = v.state, reason = v.reason,
    decided_to = v.decided_to, next_at = v.next_at, wake_at = v.wake_at, source = v.source, trail = v.trail,
    failures = v.failures, runs = v.runs, missed = v.missed, paused_at = v.paused_at, paused_until = v.paused_until,
    last_started_at = v.last_started_at, last_finished_at = v.last_finished_at, hints = v.hints
{from}
WHERE schedules.id = v.id AND schedules.revision = v.replaces
{kept:schedules}

-- name: insert_revisions(schedule_id text, revision bigint, body text, at bigint, actor text, reason text)
INSERT INTO revisions (schedule_id, revision, body, at, actor, reason)
{values}

-- name: stand(id text, state text, reason text, decided_to bigint, next_at bigint, wake_at bigint, source text, trail text, failures bigint, runs bigint, missed bigint, paused_at bigint, paused_until bigint, last_started_at bigint, last_finished_at bigint, hints text, last_run text)
UPDATE schedules SET state = v.state, reason = v.reason, decided_to = v.decided_to, next_at = v.next_at,
    wake_at = v.wake_at, source = v.source, trail = v.trail, failures = v.failures, runs = v.runs, missed = v.missed,
    paused_at = v.paused_at, paused_until = v.paused_until, last_started_at = v.last_started_at,
    last_finished_at = v.last_finished_at, hints = v.hints,
    last_run = CASE WHEN v.last_run <> '' THEN v.last_run ELSE schedules.last_run END
{from}
WHERE schedules.id = v.id

-- name: advance(id text, decided_to bigint, next_at bigint, wake_at bigint, runs bigint, missed bigint, last_run text)
-- The ordinary step of a schedule that is locked, and of which nothing else changes.
UPDATE schedules SET decided_to = v.decided_to, next_at = v.next_at, wake_at = v.wake_at, runs = v.runs,
    missed = v.missed, last_run = v.last_run
{from}
WHERE schedules.id = v.id

-- name: insert_advanced(id* text, namespace text, schedule_id* text, planned_at* bigint, source text, revision* bigint, queue text, line text, priority bigint, alone bigint, handoff bigint, created_at bigint, previous* text)
-- The gate, for runs to which nothing has happened yet: they may start at the instant for which they were planned.
INSERT INTO runs (id, namespace, schedule_id, planned_at, fire_at, state, source, revision, queue, line, priority,
    alone, handoff, created_at, previous)
SELECT v.id, v.namespace, v.schedule_id, v.planned_at, v.planned_at, 'ready', v.source, v.revision, v.queue, v.line,
    v.priority, v.alone, v.handoff, v.created_at, v.previous
{from}
WHERE true
ON CONFLICT (planned_at, schedule_id, lane) WHERE lane <> id DO NOTHING
{kept:runs}

-- name: insert_advanced_kept(id* text, namespace text, schedule_id* text, planned_at* bigint, source text, revision* bigint, queue text, line text, priority bigint, alone bigint, handoff bigint, created_at bigint, previous* text) [sqlite]
SELECT runs.id FROM runs WHERE runs.id = v.id

-- name: insert_started(id* text, namespace text, schedule_id* text, planned_at* bigint, source text, revision* bigint, priority bigint, alone bigint, created_at bigint, previous* text, lease_id* text, holder text, lease_until bigint)
-- The gate, for runs that start as soon as they are there: their first lease begins with them.
INSERT INTO runs (id, namespace, schedule_id, planned_at, fire_at, state, source, revision, priority, alone, fence,
    created_at, leased_at, previous, lease_id, holder, lease_until)
SELECT v.id, v.namespace, v.schedule_id, v.planned_at, v.planned_at, 'leased', v.source, v.revision, v.priority, v.alone,
    1, v.created_at, v.created_at, v.previous, v.lease_id, v.holder, v.lease_until
{from}
WHERE true
ON CONFLICT (planned_at, schedule_id, lane) WHERE lane <> id DO NOTHING
{kept:runs}

-- name: insert_started_kept(id* text, namespace text, schedule_id* text, planned_at* bigint, source text, revision* bigint, priority bigint, alone bigint, created_at bigint, previous* text, lease_id* text, holder text, lease_until bigint) [sqlite]
SELECT runs.id FROM runs WHERE runs.id = v.id

-- name: move_on(id text, next_at bigint, last_run text)
-- The ordinary step of a schedule that is locked.
UPDATE schedules SET decided_to = schedules.next_at, next_at = v.next_at, wake_at = v.next_at,
    runs = schedules.runs + 1, last_run = v.last_run
{from}
WHERE schedules.id = v.id

-- name: park_unreadable
UPDATE schedules SET state = 'parked', reason = :reason, next_at = NULL, wake_at = NULL WHERE id = :id

-- name: due_schedules
-- The lower bound keeps a claim from wading through index entries that are already behind us.
SELECT {due}
FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :now AND s.wake_at >= :since
ORDER BY s.wake_at, s.id
LIMIT :limit
{skip_locked:s}

-- name: due_until
-- What will be looked at then, without holding any of it.
SELECT s.id, s.revision FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :until
ORDER BY s.wake_at, s.id
LIMIT :limit

-- name: due_shard
-- The remainder is spelled out because a percent sign means something else on its way to PostgreSQL.
SELECT {due}
FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :now AND s.wake_at >= :since
    AND s.shard - s.shard / :shards * :shards = :shard
ORDER BY s.wake_at, s.id
LIMIT :limit
{skip_locked:s}

-- name: get_schedules
SELECT {due}
FROM schedules s
WHERE s.id {in:ids}
ORDER BY s.id

-- name: lock_schedules
SELECT id FROM schedules WHERE id {in:ids} ORDER BY id {lock}

-- name: find_schedule
SELECT id FROM schedules WHERE namespace = :namespace AND name = :name

-- name: get_named_schedule
SELECT {due}
FROM schedules s
WHERE s.namespace = :namespace AND s.name = :name

-- name: list_schedules
SELECT {due}, s.namespace, s.name
FROM schedules s
WHERE (s.namespace, s.name) > (:after_namespace, :after_name)
    AND s.namespace >= :first_namespace AND s.namespace <= :last_namespace
    AND (:state = '' OR s.state = :state) AND (:grouped = '' OR s.grouped = :grouped)
    AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
ORDER BY s.namespace, s.name
LIMIT :limit

-- name: look_at
-- One schedule, what it says, and whether there is anything else about it to be asked for.
SELECT {due}, (SELECT v.body FROM revisions v WHERE v.schedule_id = s.id AND v.revision = s.revision),
    EXISTS (SELECT 1 FROM links l WHERE l.upstream = s.id),
    EXISTS (SELECT 1 FROM runs r WHERE r.schedule_id = s.id AND r.state = 'ready' AND r.asleep = 1 AND r.lane <> ''),
    EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'note' AND o.namespace = s.namespace
        AND o.name > s.id || '/' AND o.name < s.id || '0')
FROM schedules s
WHERE s.namespace = :namespace AND s.name = :name

-- name: schedule_names
SELECT id, name FROM schedules WHERE id {in:ids}

-- name: list_shown [sqlite]
-- A page as one text, a line for each row: what is still the same is then seen at a glance.
SELECT group_concat(shown, char(10)) FROM (
    SELECT json_array({shown}) AS shown FROM schedules s
    WHERE s.namespace = :namespace AND s.name >= :first AND s.name <= :last AND s.name <> :after
        AND (:state = '' OR s.state = :state) AND (:grouped = '' OR s.grouped = :grouped)
        AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
    ORDER BY s.name
    LIMIT :limit)

-- name: list_shown [postgres]
SELECT string_agg(shown, chr(10) ORDER BY name) FROM (
    SELECT json_build_array({shown})::text AS shown, s.name FROM schedules s
    WHERE s.namespace = :namespace AND s.name >= :first AND s.name <= :last AND s.name <> :after
        AND (:state = '' OR s.state = :state) AND (:grouped = '' OR s.grouped = :grouped)
        AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
    ORDER BY s.name
    LIMIT :limit) page

-- name: list_resting_shown [sqlite]
SELECT group_concat(shown, char(10)) FROM (
    SELECT json_array({shown}) AS shown FROM schedules s
    WHERE s.state <> 'active' AND s.state = :state AND s.namespace = :namespace AND s.name >= :first AND s.name <= :last AND s.name <> :after
        AND (:grouped = '' OR s.grouped = :grouped)
        AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
    ORDER BY s.name
    LIMIT :limit)

-- name: list_resting_shown [postgres]
SELECT string_agg(shown, chr(10) ORDER BY name) FROM (
    SELECT json_build_array({shown})::text AS shown, s.name FROM schedules s
    WHERE s.state <> 'active' AND s.state = :state AND s.namespace = :namespace AND s.name >= :first AND s.name <= :last AND s.name <> :after
        AND (:grouped = '' OR s.grouped = :grouped)
        AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
    ORDER BY s.name
    LIMIT :limit) page

-- name: get_revisions(schedule_id text, revision bigint) [postgres]
SELECT r.schedule_id, r.revision, r.body FROM revisions r {join} r.schedule_id = v.schedule_id AND r.revision = v.revision

-- name: get_revisions(schedule_id* text, revision* bigint) [sqlite]
SELECT schedule_id, revision, body FROM revisions WHERE schedule_id = v.schedule_id AND revision = v.revision

-- name: list_revisions
SELECT revision, body, at, actor, reason FROM revisions WHERE schedule_id = :id ORDER BY revision DESC LIMIT :limit

-- name: next_wake
SELECT (SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL),
    (SELECT min(fire_at) FROM runs WHERE state = 'ready' AND asleep = 1)

-- name: next_of_shard
SELECT s.wake_at
FROM schedules s
WHERE s.wake_at IS NOT NULL AND s.wake_at <= :until AND s.shard - s.shard / :shards * :shards = :shard
ORDER BY s.wake_at
LIMIT 1

-- name: next_lease_end
SELECT min(lease_until) FROM runs WHERE state = 'leased'

-- name: insert_runs(id* text, namespace text, schedule_id* text, lane* text, planned_at* bigint, fire_at* bigint, state text, asleep bigint, reason text, source text, revision* bigint, queue text, line text, priority bigint, alone bigint, handoff bigint, fence bigint, last_of bigint, dropped bigint, created_at bigint, finished_at bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint, parent text, previous* text, extra text)
-- The gate: the same occurrence twice is an ordinary "already there".
INSERT INTO runs (id, namespace, schedule_id, lane, planned_at, fire_at, state, asleep, reason, source, revision, queue,
    line, priority, alone, handoff, fence, last_of, dropped, created_at, finished_at, lease_id, holder, leased_at,
    lease_until, parent, previous, extra)
{values}
ON CONFLICT (planned_at, schedule_id, lane) WHERE lane <> id DO NOTHING
{kept:runs}

-- name: insert_runs_kept(id* text, namespace text, schedule_id* text, lane* text, planned_at* bigint, fire_at* bigint, state text, asleep bigint, reason text, source text, revision* bigint, queue text, line text, priority bigint, alone bigint, handoff bigint, fence bigint, last_of bigint, dropped bigint, created_at bigint, finished_at bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint, parent text, previous* text, extra text) [sqlite]
-- Ids are new: whoever has a row has it from this.
SELECT runs.id FROM runs WHERE runs.id = v.id

-- name: insert_new_runs(id* text, namespace text, schedule_id* text, lane* text, planned_at* bigint, fire_at* bigint, state text, asleep bigint, reason text, source text, revision* bigint, queue text, line text, priority bigint, alone bigint, handoff bigint, fence bigint, last_of bigint, dropped bigint, created_at bigint, finished_at bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint, parent text, previous* text, extra text)
-- Ids that were made for these rows, each in a lane of its own: nobody can have been there before, and nobody asks.
INSERT INTO runs (id, namespace, schedule_id, lane, planned_at, fire_at, state, asleep, reason, source, revision, queue,
    line, priority, alone, handoff, fence, last_of, dropped, created_at, finished_at, lease_id, holder, leased_at,
    lease_until, parent, previous, extra)
{values}

-- name: link_runs(id text, previous text)
UPDATE runs SET previous = v.previous {from} WHERE runs.id = v.id

-- name: get_runs
SELECT {run} FROM runs WHERE id {in:ids} ORDER BY id

-- name: lock_runs
SELECT id FROM runs WHERE id {in:ids} ORDER BY id {lock}

-- name: find_occurrence
SELECT {run} FROM runs
WHERE planned_at = :planned_at AND schedule_id = :schedule_id AND lane = '' AND lane <> id

-- name: walk_schedule
-- A schedule's history is a chain from its newest run back, so it needs no index that grows out of order.
WITH RECURSIVE walk (id, step) AS (
    SELECT runs.id, 1 FROM runs WHERE runs.id = :start
    UNION ALL
    SELECT r.previous, walk.step + 1 FROM walk JOIN runs r ON r.id = walk.id
    WHERE r.previous <> '' AND walk.step < :most
)
SELECT {run} FROM walk JOIN runs ON runs.id = walk.id ORDER BY walk.step

-- name: newest_waiting
-- Each state has an index of its own, which serves only where the state is named.
SELECT max(id) FROM (
    SELECT id FROM runs WHERE state = 'parked' AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'held' AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'leased' AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'ready' AND asleep = 0 AND schedule_id = :id AND id || '' < :before
    UNION ALL
    SELECT id FROM runs WHERE state = 'ready' AND asleep = 1 AND schedule_id = :id AND id || '' < :before
) AS waiting

-- name: last_run
SELECT last_run FROM schedules WHERE id = :id

-- name: list_runs
SELECT {run} FROM runs
WHERE id < :before AND id >= :from AND (:namespace = '' OR namespace = :namespace) AND (:queue = '' OR queue = :queue)
    AND (:state = '' OR state = :state) AND planned_at >= :since AND planned_at <= :until
ORDER BY id DESC
LIMIT :limit

-- name: in_flight
SELECT schedule_id, state, count(*) FROM runs
WHERE schedule_id {in:ids} AND alone = 1 AND schedule_id <> '' AND state IN ('ready', 'leased')
GROUP BY schedule_id, state
UNION ALL
SELECT schedule_id, state, count(*) FROM runs WHERE schedule_id {in:ids} AND state = 'held' GROUP BY schedule_id, state

-- name: live_runs
SELECT {run} FROM runs
WHERE schedule_id {in:ids} AND alone = 1 AND schedule_id <> '' AND state IN ('ready', 'leased')
UNION ALL
SELECT {run} FROM runs WHERE schedule_id {in:ids} AND state = 'held'
ORDER BY 5, 1

-- name: outlook
-- What a tick asks before it writes anything. The end of leases costs as much as there are of them. Whether anybody
-- waits is asked from the end of the line: PostgreSQL keeps for a while the places of those who left at its front.
SELECT (SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL),
    (SELECT min(fire_at) FROM runs WHERE state = 'ready' AND asleep = 1),
    (SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = 0
        ORDER BY line DESC, priority DESC, planned_at DESC, id DESC LIMIT 1),
    (SELECT 1 FROM runs WHERE state = 'leased' AND cancel_at IS NOT NULL AND holder = :holder LIMIT 1),
    CASE WHEN :ends = 1 THEN (SELECT min(lease_until) FROM runs WHERE state = 'leased') END,
    CASE WHEN :held = 1 THEN (SELECT 1 FROM runs WHERE state = 'held' LIMIT 1) END

-- name: any_asleep
SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 1 AND fire_at <= :now LIMIT 1

-- name: awaken
-- Runs that waited for their instant join the line; the subquery bounds how many at a time.
UPDATE runs SET asleep = 0
WHERE id IN (SELECT id FROM runs WHERE state = 'ready' AND asleep = 1 AND fire_at <= :now
    ORDER BY fire_at LIMIT :limit {skip_locked})

-- name: ready_lines
-- The distinct lines that have someone waiting, found by jumping from one to the next.
WITH RECURSIVE lines (line) AS (
    SELECT min(line) FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = :handoff
    UNION ALL
    SELECT (SELECT min(r.line) FROM runs r
        WHERE r.state = 'ready' AND r.asleep = 0 AND r.handoff = :handoff AND r.line > lines.line)
    FROM lines WHERE lines.line IS NOT NULL
)
SELECT line FROM lines WHERE line IS NOT NULL

-- name: ready_runs
-- Few columns, because most have never been leased: what else there is of a run is fetched where there is something.
SELECT id, namespace, schedule_id, lane, planned_at, fire_at, state, source, revision, queue, priority, alone, handoff,
    created_at, previous, extra,
    CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = '' AND finished_at IS NULL
        AND parent = '' THEN 1 ELSE 0 END
FROM runs
WHERE state = 'ready' AND asleep = 0 AND handoff = :handoff AND line = :line
ORDER BY priority, planned_at, id
LIMIT :limit
{skip_locked}

-- name: ready_first [sqlite]
-- The same for all lines together, each row with its line.
SELECT line, id, namespace, schedule_id, lane, planned_at, fire_at, state, source, revision, queue, priority, alone,
    handoff, created_at, previous, extra,
    CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = '' AND finished_at IS NULL
        AND parent = '' THEN 1 ELSE 0 END
FROM runs
WHERE state = 'ready' AND asleep = 0 AND handoff = :handoff
ORDER BY line, priority, planned_at, id
LIMIT :most

-- name: ready_everywhere [postgres]
-- The same for every line in one journey; each row says at last whether someone sleeps whose instant has come, and
-- there is one that says nothing else where nobody waits. Lines are found from their ends, as in `outlook`.
WITH RECURSIVE lines (line) AS (
    SELECT max(line) FROM runs WHERE state = 'ready' AND asleep = 0 AND handoff = :handoff
    UNION ALL
    SELECT (SELECT max(r.line) FROM runs r
        WHERE r.state = 'ready' AND r.asleep = 0 AND r.handoff = :handoff AND r.line < lines.line)
    FROM lines WHERE lines.line IS NOT NULL
)
SELECT r.id, r.namespace, r.schedule_id, r.lane, r.planned_at, r.fire_at, r.state, r.source, r.revision, r.queue,
    r.priority, r.alone, r.handoff, r.created_at, r.previous, r.extra, r.is_new, lines.line, sleepers.wake
FROM (SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 1 AND fire_at <= :now) AS wake) sleepers
LEFT JOIN (
    lines CROSS JOIN LATERAL (
        SELECT id, namespace, schedule_id, lane, planned_at, fire_at, state, source, revision, queue, priority, alone,
            handoff, created_at, previous, extra,
            CASE WHEN fence = 0 AND attempts = 0 AND refunds = 0 AND reason = '' AND error = ''
                AND finished_at IS NULL AND parent = '' THEN 1 ELSE 0 END AS is_new
        FROM runs
        WHERE state = 'ready' AND asleep = 0 AND handoff = :handoff AND line = lines.line
        ORDER BY priority, planned_at, id
        LIMIT :limit
        {skip_locked}
    ) r
) ON true

-- name: oldest_ready_runs
SELECT {run} FROM runs
WHERE state = 'ready' AND asleep = 0 AND handoff = :handoff AND line = :line
ORDER BY planned_at, id
LIMIT :limit
{skip_locked}

-- name: queue_runs
-- One branch for each index that knows the unfinished: history is not walked for them.
SELECT {run} FROM runs WHERE state = 'ready' AND asleep = 0 AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'ready' AND asleep = 1 AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'leased' AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'held' AND queue = :queue AND namespace = :namespace
UNION ALL
SELECT {run} FROM runs WHERE state = 'parked' AND queue = :queue AND namespace = :namespace
ORDER BY priority, planned_at, id
LIMIT :limit

-- name: ensure_gates(gate text, most bigint)
INSERT INTO gates (gate, most) {values} ON CONFLICT (gate) DO NOTHING

-- name: set_gates(gate text, most bigint)
INSERT INTO gates (gate, most) {values} ON CONFLICT (gate) DO UPDATE SET most = excluded.most

-- name: hold_gates
SELECT gate, most FROM gates WHERE gate {in:gates} ORDER BY gate {lock}

-- name: full_gates [sqlite]
-- How many leases gates admit, and how many there are: whoever writes is alone, so both are read at once.
SELECT gate, most, (SELECT count(*) FROM holds WHERE holds.gate = gates.gate) FROM gates WHERE gate {in:gates} ORDER BY gate

-- name: count_holds
SELECT gate, count(*) FROM holds WHERE gate {in:gates} GROUP BY gate

-- name: insert_holds(gate text, run_id text, fence bigint)
INSERT INTO holds (gate, run_id, fence) {values}

-- name: delete_holds
DELETE FROM holds WHERE run_id {in:ids}

-- name: lease_runs(id* text, fence bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint)
-- The fence moves with every lease; whoever read an older one leases nothing. The state is spelled so that no
-- statistics apply to it: taken when nothing was ready they promise one row, and PostgreSQL then compares every
-- ready run with every grant.
UPDATE runs SET state = 'leased', fence = runs.fence + 1, lease_id = v.lease_id, holder = v.holder,
    leased_at = v.leased_at, lease_until = v.lease_until, started_at = NULL, cancel_at = NULL, reason = ''
{from}
WHERE runs.id = v.id AND runs.state || '' = 'ready' AND runs.fence = v.fence
{kept:runs}

-- name: lease_runs_kept(id* text, fence bigint, lease_id* text, holder text, leased_at bigint, lease_until bigint) [sqlite]
SELECT runs.id FROM runs WHERE runs.id = v.id AND runs.lease_id = v.lease_id AND runs.fence = v.fence + 1

-- name: renew_leases(id text, fence bigint, lease_until bigint)
-- What was promised is never taken back: a shorter length, or a clock read long ago, leaves the end where it was.
UPDATE runs SET lease_until = CASE WHEN runs.cancel_at IS NULL AND v.lease_until > runs.lease_until
    THEN v.lease_until ELSE runs.lease_until END
{from}
WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence
RETURNING runs.id, runs.fence, runs.cancel_at

-- name: expired_leases
SELECT {run} FROM runs WHERE state = 'leased' AND lease_until <= :now
ORDER BY lease_until, id LIMIT :limit {skip_locked}

-- name: leased_runs
-- Unordered, here and below: asked for in the order of their ids, SQLite would walk all history by its key.
SELECT {run} FROM runs WHERE state = 'leased' AND (:holder = '' OR holder = :holder)

-- name: find_lease
-- Ids begin with their instant, which is that of the lease: so one is found by the index of live ones.
SELECT {run} FROM runs
WHERE state = 'leased' AND leased_at >= :since AND leased_at < :until AND lease_id = :lease_id

-- name: asked_to_stop
SELECT {run} FROM runs WHERE state = 'leased' AND cancel_at IS NOT NULL AND holder = :holder

-- name: park_runs
-- Rows that cannot be understood are taken out of the way and kept.
UPDATE runs SET state = 'parked', reason = 'unreadable', lease_id = '', holder = '', leased_at = NULL,
    lease_until = NULL, cancel_at = NULL
WHERE id {in:ids}

-- name: settle_runs(id* text, fence bigint, state text, asleep bigint, fire_at bigint, reason text, attempts bigint, refunds bigint, started_at* bigint, finished_at bigint, word text, error text)
-- The fence decides: an answer from a lost lease names an old one and matches no row. A run that is over keeps the
-- instant at which it could start.
UPDATE runs SET state = v.state, asleep = v.asleep, fire_at = coalesce(v.fire_at, runs.fire_at), reason = v.reason,
    attempts = v.attempts, refunds = v.refunds, started_at = v.started_at, finished_at = v.finished_at, word = v.word,
    error = v.error, lease_id = '', holder = '', leased_at = NULL, lease_until = NULL, cancel_at = NULL
{from}
WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence
{kept:runs}

-- name: settle_runs_kept(id* text, fence bigint, state text, asleep bigint, fire_at bigint, reason text, attempts bigint, refunds bigint, started_at* bigint, finished_at bigint, word text, error text) [sqlite]
-- Asked before their attempts are written: what ended under this fence earlier has one.
SELECT runs.id FROM runs
WHERE runs.id = v.id AND runs.fence = v.fence AND runs.state = v.state AND runs.finished_at IS v.finished_at
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = runs.id AND a.fence = runs.fence)

-- name: insert_attempts(run_id* text, fence bigint, number bigint, lease_id* text, holder text, leased_at* bigint, lease_until* bigint, started_at* bigint, ended_at bigint, outcome text, charged bigint, word text, error text, result text, cost text)
INSERT INTO attempts (run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at, outcome,
    charged, word, error, result, cost)
{values}

-- name: change_runs(id text, was text, fence bigint, state text, asleep bigint, fire_at bigint, reason text, attempts bigint, refunds bigint, finished_at bigint, error text)
UPDATE runs SET state = v.state, asleep = v.asleep, fire_at = v.fire_at, reason = v.reason, attempts = v.attempts,
    refunds = v.refunds, finished_at = v.finished_at, error = v.error
{from}
WHERE runs.id = v.id AND runs.state = v.was AND runs.fence = v.fence AND v.was <> 'leased'
{kept:runs}

-- name: ask_to_cancel(id text, at bigint, until bigint, reason text)
-- A lease that was asked to end is not prolonged any more, so its end also bounds how long a successor waits.
UPDATE runs SET cancel_at = v.at, reason = v.reason,
    lease_until = CASE WHEN runs.lease_until < v.until THEN runs.lease_until ELSE v.until END
{from}
WHERE runs.id = v.id AND runs.state = 'leased' AND runs.cancel_at IS NULL
{kept:runs}

-- name: failing
SELECT id FROM schedules WHERE failures > 0 LIMIT :limit

-- name: what_waits
-- Every end of a run asks: is a run held behind another, does a schedule ask for another's ends, did one fail last?
SELECT (SELECT 1 FROM runs WHERE state = 'held' LIMIT 1), (SELECT 1 FROM links LIMIT 1),
    (SELECT 1 FROM schedules WHERE failures > 0 LIMIT 1)

-- name: clear_streaks(id text)
UPDATE schedules SET failures = 0 {from} WHERE schedules.id = v.id AND schedules.failures > 0

-- name: freeable
-- The first held run of each schedule that has nothing of its own ready or leased. The plus keeps a plan from walking
-- every run in the order of time, where the few that are held have an index of their own.
SELECT {run} FROM runs
WHERE runs.state = 'held'
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.state = 'held'
        AND (b.planned_at < runs.planned_at OR (b.planned_at = runs.planned_at AND b.id < runs.id)))
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.alone = 1
        AND b.schedule_id <> '' AND b.state IN ('ready', 'leased'))
ORDER BY +runs.planned_at, runs.id
LIMIT :limit

-- name: freeable_of
-- The same for some schedules, found by their held runs alone.
SELECT {run} FROM runs
WHERE runs.schedule_id {in:ids} AND runs.state = 'held'
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.state = 'held'
        AND (b.planned_at < runs.planned_at OR (b.planned_at = runs.planned_at AND b.id < runs.id)))
    AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.schedule_id = runs.schedule_id AND b.alone = 1
        AND b.schedule_id <> '' AND b.state IN ('ready', 'leased'))
ORDER BY runs.planned_at, runs.id
LIMIT :limit

-- name: get_attempts
SELECT run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at, outcome, charged, word,
    error, result, cost
FROM attempts WHERE run_id {in:ids} ORDER BY run_id, fence

-- name: insert_objects(kind text, namespace text, name text, revision bigint, body text, at bigint)
INSERT INTO objects (kind, namespace, name, revision, body, at)
{values}
ON CONFLICT (kind, namespace, name) DO UPDATE SET revision = excluded.revision, body = excluded.body, at = excluded.at

-- name: create_objects(kind text, namespace text, name text, revision bigint, body text, at bigint)
INSERT INTO objects (kind, namespace, name, revision, body, at)
{values}
ON CONFLICT (kind, namespace, name) DO NOTHING
RETURNING kind, namespace, name

-- name: object_revisions
SELECT name, revision FROM objects WHERE kind = :kind AND namespace = :namespace AND name {in:names} ORDER BY name {lock}

-- name: get_objects
SELECT kind, namespace, name, revision, body, at FROM objects
WHERE kind = :kind AND (:namespace = '' OR namespace = :namespace) AND (:all_names = 1 OR name {in:names})
ORDER BY namespace, name

-- name: delete_object
DELETE FROM objects WHERE kind = :kind AND namespace = :namespace AND name = :name RETURNING name

-- name: insert_audit(seq bigint, at bigint, namespace text, actor text, origin text, action text, subject text, before text, after text, reason text, chain text)
INSERT INTO audit (seq, at, namespace, actor, origin, action, subject, before, after, reason, chain)
{values}

-- name: last_audit
SELECT seq, chain FROM audit ORDER BY seq DESC LIMIT 1

-- name: list_audit
SELECT seq, at, namespace, actor, origin, action, subject, before, after, reason, chain FROM audit
WHERE seq < :before AND (:namespace = '' OR namespace = :namespace) ORDER BY seq DESC LIMIT :limit

-- name: get_meta
SELECT value FROM meta WHERE name = :name

-- name: put_meta
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: raise_mark
-- A number that never sinks, whoever writes it and however late.
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE CAST(excluded.value AS BIGINT) > CAST(meta.value AS BIGINT)

-- name: hold_meta
-- Holds the row until the transaction ends, also one that was not there.
INSERT INTO meta (name, value) VALUES (:name, '') ON CONFLICT (name) DO UPDATE SET value = meta.value

-- name: prunable
-- Ids sort by time, so the oldest finished runs stand at the front of the table.
-- An old run that ended lately is not old. A step stays while its workflow may still ask what it answered.
SELECT id FROM runs
WHERE id < :last AND state IN ('succeeded', 'failed', 'skipped', 'cancelled')
    AND (id < :beyond OR (id < :aged AND (finished_at IS NULL OR finished_at < :ended)))
    AND (parent = '' OR NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = runs.parent
        AND p.state IN ('ready', 'held', 'leased', 'parked')))
ORDER BY id LIMIT :limit {skip_locked}

-- name: delete_runs
DELETE FROM runs WHERE id {in:ids} AND state IN ('succeeded', 'failed', 'skipped', 'cancelled') RETURNING id

-- name: delete_attempts
DELETE FROM attempts WHERE run_id {in:ids}

-- name: put_said(run_id text, fence bigint, number bigint, at bigint, size bigint, cut bigint, body text)
INSERT INTO said (run_id, fence, number, at, size, cut, body)
{values}
ON CONFLICT (run_id, fence) DO UPDATE SET at = excluded.at, size = excluded.size, cut = excluded.cut, body = excluded.body

-- name: get_said
SELECT run_id, fence, number, at, size, cut, body FROM said WHERE run_id {in:ids} ORDER BY run_id, fence

-- name: drop_said(run_id text, fence bigint)
DELETE FROM said WHERE (run_id, fence) IN ({values})

-- name: delete_said
DELETE FROM said WHERE run_id {in:ids}

-- name: nth_newest_run
SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET :offset

-- name: store_bytes [sqlite]
SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)
    - (SELECT freelist_count FROM pragma_freelist_count) * (SELECT page_size FROM pragma_page_size)

-- name: store_bytes [postgres]
-- What the rows take, not the tables: these do not shrink when rows go, and pruning would never stop.
SELECT (SELECT count(*) FROM runs)
    * (SELECT coalesce(avg(w.width), 0) FROM
        (SELECT pg_column_size(r) AS width FROM runs r ORDER BY r.id DESC LIMIT 1000) w)
    + (SELECT count(*) FROM attempts)
    * (SELECT coalesce(avg(w.width), 0) FROM
        (SELECT pg_column_size(a) AS width FROM attempts a ORDER BY a.run_id DESC LIMIT 1000) w)

-- name: gate_limits
SELECT gate, most FROM gates WHERE gate {in:gates} ORDER BY gate

-- What the checker reads: rows as they are, in pages.

-- name: history_schedules
SELECT id, namespace, name, revision, state, reason, decided_to, next_at, wake_at, source, trail, failures, runs, missed,
    paused_at, paused_until, last_started_at, last_finished_at, hints, last_run
FROM schedules WHERE id > :after AND (:namespace = '' OR namespace = :namespace) ORDER BY id LIMIT :limit

-- name: history_revisions
SELECT r.schedule_id, r.revision, r.body, r.at, r.actor, r.reason
FROM revisions r JOIN schedules s ON s.id = r.schedule_id
WHERE (r.schedule_id, r.revision) > (:after, :after_revision) AND (:namespace = '' OR s.namespace = :namespace)
ORDER BY r.schedule_id, r.revision LIMIT :limit

-- name: history_runs
SELECT {run} FROM runs
WHERE id < :before AND id >= :first AND (:namespace = '' OR namespace = :namespace)
ORDER BY id DESC LIMIT :limit

-- name: history_unfinished
-- One branch for each index that knows the unfinished. The range is spelled so that no key fits it: SQLite would
-- rather walk all history in the order of its ids.
SELECT {run} FROM runs
WHERE id IN (
    SELECT u.id FROM (
        SELECT id FROM runs WHERE state = 'ready' AND asleep = 0
        UNION ALL SELECT id FROM runs WHERE state = 'ready' AND asleep = 1
        UNION ALL SELECT id FROM runs WHERE state = 'leased'
        UNION ALL SELECT id FROM runs WHERE state = 'held'
        UNION ALL SELECT id FROM runs WHERE state = 'parked'
    ) u
    WHERE u.id || '' > :after AND u.id || '' < :first
) AND (:namespace = '' OR namespace = :namespace)
ORDER BY id
LIMIT :limit

-- name: history_attempts
SELECT run_id, fence, number, lease_id, holder, leased_at, lease_until, started_at, ended_at, outcome, charged,
    length(result) + length(error)
FROM attempts WHERE run_id {in:ids} ORDER BY run_id, fence

-- name: history_gates
SELECT gate, most FROM gates WHERE gate > :after ORDER BY gate LIMIT :limit

-- name: history_holds
SELECT gate, run_id, fence FROM holds WHERE (gate, run_id) > (:after, :after_run) ORDER BY gate, run_id LIMIT :limit

-- name: history_objects
SELECT kind, namespace, name, revision, body, at FROM objects
WHERE (kind, namespace, name) > (:after_kind, :after_namespace, :after_name)
    AND kind IN ('queue', 'limit', 'calendar') AND (:namespace = '' OR namespace = :namespace)
ORDER BY kind, namespace, name LIMIT :limit

-- name: history_accounts
SELECT budget, period, used, held FROM accounts WHERE (budget, period) > (:after, :after_period)
ORDER BY budget, period LIMIT :limit

-- name: history_charges
SELECT run_id, fence, budget, period, used, held, open FROM charges
WHERE (run_id, fence, budget) > (:after, :after_fence, :after_budget)
ORDER BY run_id, fence, budget LIMIT :limit

-- name: history_audit
SELECT seq, at, namespace, actor, origin, action, subject, before, after, reason FROM audit
WHERE seq < :before AND at >= :since AND (:namespace = '' OR namespace = :namespace) ORDER BY seq DESC LIMIT :limit

-- name: meta_starting
SELECT name, value FROM meta
WHERE name > :after AND substr(name, 1, length(:prefix)) = :prefix ORDER BY name LIMIT :limit

-- name: count_live
-- Each kind stands in a partial index of its own, and is counted no further than :most; asked for in its order,
-- the index is walked and not the history, whatever the statistics say.
SELECT namespace, queue, kind, sum(number) FROM (
    SELECT namespace, queue, 'ready' AS kind, 1 AS number FROM
        (SELECT namespace, queue FROM runs WHERE state = 'ready' AND asleep = 0
            ORDER BY handoff, line, priority, planned_at, id LIMIT :most) a
    UNION ALL
    SELECT namespace, queue, 'waiting', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'ready' AND asleep = 1 ORDER BY fire_at LIMIT :most) b
    UNION ALL
    SELECT namespace, queue, 'leased', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'leased' ORDER BY leased_at LIMIT :most) c
    UNION ALL
    SELECT namespace, queue, 'held', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'held' ORDER BY schedule_id, planned_at LIMIT :most) d
    UNION ALL
    SELECT namespace, queue, 'parked', 1 FROM
        (SELECT namespace, queue FROM runs WHERE state = 'parked' ORDER BY planned_at LIMIT :most) e
    UNION ALL
    SELECT namespace, '', 'due', 1 FROM
        (SELECT namespace FROM schedules WHERE wake_at IS NOT NULL AND wake_at <= :now
            ORDER BY wake_at LIMIT :most) f
    UNION ALL
    SELECT namespace, '', 'parked_schedule', 1 FROM
        (SELECT namespace FROM schedules WHERE state = 'parked' ORDER BY namespace, name LIMIT :most) g
    UNION ALL
    SELECT '', gate, 'ceiling', most FROM (SELECT gate, most FROM gates ORDER BY gate LIMIT :most) h
) counted
GROUP BY namespace, queue, kind
ORDER BY namespace, queue, kind

-- name: oldest_ready
-- The first of each line and priority, found by jumping from one to the next; nobody before them is older.
WITH RECURSIVE firsts (id, step) AS (
    SELECT id, 1 FROM (SELECT id FROM runs WHERE state = 'ready' AND asleep = 0
        ORDER BY handoff, line, priority, planned_at, id LIMIT 1) a
    UNION ALL
    SELECT (SELECT r.id FROM runs r WHERE r.state = 'ready' AND r.asleep = 0
            AND (r.handoff, r.line, r.priority) > (b.handoff, b.line, b.priority)
            ORDER BY r.handoff, r.line, r.priority, r.planned_at, r.id LIMIT 1),
        firsts.step + 1
    FROM firsts JOIN runs b ON b.id = firsts.id WHERE firsts.step < :most
)
SELECT runs.namespace, runs.queue, min(runs.fire_at) FROM firsts JOIN runs ON runs.id = firsts.id
GROUP BY runs.namespace, runs.queue

-- name: take_over(id text, fence bigint, was text, holder text, started_at bigint, lease_until bigint, extra text)
-- The same lease in other hands: the fence stays, so whoever launched the run may still be answered for.
UPDATE runs SET holder = v.holder, started_at = v.started_at, lease_until = v.lease_until, extra = v.extra
{from}
WHERE runs.id = v.id AND runs.state || '' = 'leased' AND runs.fence = v.fence AND runs.holder = v.was
RETURNING runs.id

-- name: prolong
UPDATE runs SET lease_until = :until, started_at = coalesce(:started_at, started_at)
WHERE id = :id AND state = 'leased' AND cancel_at IS NULL
RETURNING id

-- name: hold_wholes
SELECT parent, step, met, live, parked, failed, cancelled, round, state, run_id
FROM steps WHERE step = '' AND parent {in:ids} ORDER BY parent {lock}

-- name: add_to_steps(parent text, step text, met bigint, live bigint, parked bigint, failed bigint, cancelled bigint, round bigint, state text, run_id text)
INSERT INTO steps (parent, step, met, live, parked, failed, cancelled, round, state, run_id)
{values}
ON CONFLICT (parent, step) DO UPDATE SET met = steps.met + excluded.met, live = steps.live + excluded.live,
    parked = steps.parked + excluded.parked, failed = steps.failed + excluded.failed,
    cancelled = steps.cancelled + excluded.cancelled, round = steps.round + excluded.round,
    state = CASE WHEN excluded.state <> '' THEN excluded.state ELSE steps.state END,
    run_id = CASE WHEN excluded.run_id <> '' THEN excluded.run_id ELSE steps.run_id END
RETURNING parent, step, met, live, parked, failed, cancelled, round, state, run_id

-- name: get_steps
SELECT parent, step, met, live, parked, failed, cancelled, round, state, run_id
FROM steps WHERE parent = :parent AND step {in:steps}

-- name: all_steps
SELECT parent, step, met, live, parked, failed, cancelled, round, state, run_id FROM steps WHERE parent = :parent

-- name: delete_steps
DELETE FROM steps WHERE parent {in:ids}

-- name: child_runs
SELECT {run} FROM runs
WHERE parent = :parent AND parent <> '' AND (:finished = 1 OR state IN ('ready', 'held', 'leased', 'parked'))

-- name: lane_runs
SELECT {run} FROM runs
WHERE planned_at = :planned_at AND schedule_id = '' AND lane >= :first AND lane < :last AND lane <> id
ORDER BY lane

-- name: count_namespace
-- For quotas: schedules in use and runs that wait, each counted no further than it matters. Those in use are all
-- but those that are over, because indexes alone can count both.
WITH past (many) AS (SELECT count(*) FROM schedules
    WHERE state <> 'active' AND state IN ('archived', 'finished') AND namespace = :namespace)
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM schedules
        WHERE namespace = :namespace LIMIT :most_schedules + (SELECT many FROM past)) a)
        - (SELECT many FROM past),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 0 AND namespace = :namespace
        UNION ALL
        SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 1 AND namespace = :namespace
        UNION ALL
        SELECT 1 FROM runs WHERE state = 'held' AND namespace = :namespace
        LIMIT :most_runs) b)

-- name: newest_objects
SELECT kind, namespace, name, revision, body, at FROM objects
WHERE kind = :kind AND namespace = :namespace AND name < :before
ORDER BY name DESC LIMIT :limit

-- name: prune_objects
-- Names of such a kind rise with time, so that the first ones are looked at and nothing else.
DELETE FROM objects WHERE kind = :kind AND namespace = :namespace AND at < :older AND name IN (
    SELECT name FROM objects WHERE kind = :kind AND namespace = :namespace ORDER BY name LIMIT :limit)
RETURNING name

-- name: upcoming
SELECT id FROM schedules
WHERE wake_at IS NOT NULL AND wake_at <= :until AND namespace = :namespace
ORDER BY wake_at, id
LIMIT :limit

-- name: groups
SELECT grouped, count(*), count(CASE WHEN state = 'active' THEN 1 END), count(CASE WHEN state = 'paused' THEN 1 END),
    count(CASE WHEN state = 'parked' THEN 1 END)
FROM schedules
WHERE namespace = :namespace AND grouped > :after AND state <> 'archived'
GROUP BY grouped
ORDER BY grouped
LIMIT :limit

-- name: count_standing
-- No further than somebody would read; each part has an index of its own.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'leased' AND namespace = :namespace LIMIT :most) AS a),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 0 AND namespace = :namespace
        UNION ALL
        SELECT 1 FROM runs WHERE state = 'ready' AND asleep = 1 AND namespace = :namespace LIMIT :most) AS b),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'failed' AND id >= :from AND namespace = :namespace AND planned_at >= :since
        LIMIT :most) AS c),
    (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE state = 'parked' AND namespace = :namespace LIMIT :most) AS d)

-- name: past
SELECT state, planned_at, fire_at, started_at FROM runs
WHERE id >= :from AND namespace = :namespace AND planned_at >= :since ORDER BY id DESC LIMIT :limit

-- name: newest_marks
-- The chains of several schedules at once, each from its newest run back.
WITH RECURSIVE walk (schedule_id, id, step) AS (
    SELECT s.id, s.last_run, 1 FROM schedules s WHERE s.id {in:ids} AND s.last_run <> ''
    UNION ALL
    SELECT walk.schedule_id, r.previous, walk.step + 1 FROM walk JOIN runs r ON r.id = walk.id
    WHERE r.previous <> '' AND walk.step < :most
)
SELECT walk.schedule_id, runs.id, runs.planned_at, runs.started_at, runs.finished_at, runs.state, runs.reason, runs.dropped
FROM walk JOIN runs ON runs.id = walk.id ORDER BY walk.schedule_id, walk.step

-- name: list_ready_runs [sqlite]
-- Each of the two kinds of ready runs has an index of its own.
SELECT {run} FROM runs WHERE id IN (
    SELECT id FROM runs WHERE state = 'ready' AND asleep = 0
    UNION ALL
    SELECT id FROM runs WHERE state = 'ready' AND asleep = 1
) AND id < :before AND id >= :from AND (:namespace = '' OR namespace = :namespace)
    AND (:queue = '' OR queue = :queue) AND planned_at >= :since AND planned_at <= :until
ORDER BY id DESC
LIMIT :limit

-- name: list_ready_runs [postgres]
-- Not by way of their ids: where nothing is known of the table yet, each would be looked for among all others.
SELECT {run} FROM runs
WHERE state = 'ready' AND asleep = 0 AND id || '' < :before AND id || '' >= :from
    AND (:namespace = '' OR namespace = :namespace) AND (:queue = '' OR queue = :queue)
    AND +planned_at >= :since AND +planned_at <= :until
UNION ALL
SELECT {run} FROM runs
WHERE state = 'ready' AND asleep = 1 AND id || '' < :before AND id || '' >= :from
    AND (:namespace = '' OR namespace = :namespace) AND (:queue = '' OR queue = :queue)
    AND +planned_at >= :since AND +planned_at <= :until
ORDER BY 1 DESC
LIMIT :limit

-- name: list_leased_runs
-- Id and time are spelled so that no key is walked for them: what lives is few, and has an index of its own.
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
-- The index holds everything that is asked here, so that only what is shown is fetched.
SELECT {run} FROM runs WHERE id IN (
    SELECT id FROM runs
    WHERE state = 'failed' AND id < :before AND id >= :from AND (:namespace = '' OR namespace = :namespace)
        AND (:queue = '' OR queue = :queue) AND planned_at >= :since AND planned_at <= :until
    ORDER BY id DESC LIMIT :limit
)
ORDER BY id DESC

-- name: list_resting_schedules
-- What is not active is the smaller part, and has an index of its own.
SELECT {due}, s.namespace, s.name
FROM schedules s
WHERE s.state <> 'active' AND s.state = :state AND (s.namespace, s.name) > (:after_namespace, :after_name)
    AND s.namespace >= :first_namespace AND s.namespace <= :last_namespace
    AND (:grouped = '' OR s.grouped = :grouped)
    AND (:prefix = '' OR substr(s.name, 1, length(:prefix)) = :prefix)
ORDER BY s.namespace, s.name
LIMIT :limit

-- name: delete_links
DELETE FROM links WHERE downstream = :downstream

-- name: insert_links(upstream text, downstream text, kind text, outcome text, delay bigint, met_at bigint, met_by text)
INSERT INTO links (upstream, downstream, kind, outcome, delay, met_at, met_by)
{values}

-- name: links_of
SELECT upstream, downstream, kind, outcome, delay, met_at, met_by FROM links
WHERE downstream {in:ids} ORDER BY upstream, downstream, kind, outcome

-- name: hold_links_of
-- Whoever starts only if an end came, and whoever brings that end, hold the same row: neither misses the other.
SELECT upstream, downstream, kind, outcome, delay, met_at, met_by FROM links
WHERE downstream {in:ids} ORDER BY upstream, downstream, kind, outcome {lock}

-- name: links_from
SELECT upstream, downstream, kind, outcome, delay, met_at, met_by FROM links
WHERE upstream {in:ids} ORDER BY upstream, downstream, kind, outcome

-- name: meet_links(upstream text, downstream text, kind text, outcome text, met_at bigint, met_by text)
UPDATE links SET met_at = v.met_at, met_by = v.met_by
{from}
WHERE links.upstream = v.upstream AND links.downstream = v.downstream AND links.kind = v.kind
    AND links.outcome = v.outcome AND (links.met_at IS NULL OR links.met_at <= v.met_at)

-- name: insert_follow_ups(downstream text, upstream_run text, upstream text, outcome text, due_at bigint)
-- One run makes one occurrence, however often it is tried again and ends.
INSERT INTO follow_ups (downstream, upstream_run, upstream, outcome, due_at)
{values}
ON CONFLICT (downstream, upstream_run) DO NOTHING

-- name: rouse(id text, at bigint)
UPDATE schedules SET
    next_at = CASE WHEN schedules.state = 'active' AND schedules.source <> 'paused'
        AND (schedules.next_at IS NULL OR schedules.next_at > v.at) THEN v.at ELSE schedules.next_at END,
    source = CASE WHEN schedules.state = 'active' AND schedules.source <> 'paused'
        AND (schedules.next_at IS NULL OR schedules.next_at > v.at) THEN 'baseline-after' ELSE schedules.source END,
    wake_at = CASE WHEN schedules.wake_at IS NULL OR schedules.wake_at > v.at THEN v.at ELSE schedules.wake_at END
{from}
WHERE schedules.id = v.id

-- name: open_follow_ups(downstream text, most bigint) [sqlite]
SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
WHERE state = 'open' AND downstream = v.downstream ORDER BY due_at, upstream_run LIMIT v.most

-- name: open_follow_ups(downstream text, most bigint) [postgres]
-- For each the earliest, so that one who has heard of very many reads no more of them than the others.
SELECT f.downstream, f.upstream_run, f.upstream, f.outcome, f.due_at, f.state, f.run_id
{from} CROSS JOIN LATERAL (
    SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
    WHERE state = 'open' AND downstream = v.downstream ORDER BY due_at, upstream_run LIMIT v.most
) f
ORDER BY f.due_at, f.upstream_run

-- name: close_follow_ups(downstream text, upstream_run text, state text, run_id text)
UPDATE follow_ups SET state = v.state, run_id = v.run_id
{from}
WHERE follow_ups.downstream = v.downstream AND follow_ups.upstream_run = v.upstream_run

-- name: drop_follow_ups
DELETE FROM follow_ups WHERE downstream = :downstream AND state = 'open'

-- name: follow_ups_of
SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
WHERE run_id <> '' AND run_id {in:ids}
UNION
SELECT downstream, upstream_run, upstream, outcome, due_at, state, run_id FROM follow_ups
WHERE upstream_run {in:upstream_runs}
ORDER BY due_at, downstream, upstream_run

-- name: forget_follow_ups
-- With the run that ended goes what it became: nobody can try it again.
DELETE FROM follow_ups WHERE upstream_run {in:ids} AND state <> 'open'

-- name: insert_waits(run_id text, schedule_id text)
INSERT INTO waits (run_id, schedule_id) {values} ON CONFLICT (run_id) DO NOTHING

-- name: waits_of
SELECT run_id FROM waits WHERE schedule_id {in:ids} ORDER BY run_id

-- name: delete_waits
DELETE FROM waits WHERE run_id {in:ids}

-- name: budgets_mark
SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'budgets'

-- name: hold_mark
INSERT INTO meta (name, value) VALUES ('budgets', '0') ON CONFLICT (name) DO UPDATE SET value = meta.value

-- name: get_book
SELECT kind, namespace, name, body FROM objects WHERE kind IN ('budget', 'provider') ORDER BY kind, namespace, name

-- name: ensure_accounts(budget text, period bigint)
INSERT INTO accounts (budget, period) {values} ON CONFLICT (budget, period) DO NOTHING

-- name: hold_accounts
SELECT budget, period, used, held FROM accounts WHERE budget {in:budgets} AND period >= :since
ORDER BY budget, period {lock}

-- name: read_accounts
SELECT budget, period, used, held FROM accounts WHERE budget {in:budgets} AND period >= :since
ORDER BY budget, period

-- name: add_to_accounts(budget text, period bigint, used bigint, held bigint)
INSERT INTO accounts (budget, period, used, held)
{values}
ON CONFLICT (budget, period) DO UPDATE SET used = accounts.used + excluded.used, held = accounts.held + excluded.held

-- name: insert_charges(run_id text, fence bigint, budget text, period bigint, at bigint, used bigint, held bigint, open bigint)
INSERT INTO charges (run_id, fence, budget, period, at, used, held, open)
{values}

-- name: open_charges
SELECT run_id, fence, budget, period, at, used, held, open FROM charges
WHERE run_id {in:ids} AND open = 1 ORDER BY run_id, fence, budget

-- name: charges_of
SELECT run_id, fence, budget, period, at, used, held, open FROM charges
WHERE run_id {in:ids} ORDER BY run_id, fence, budget

-- name: close_charges(run_id text, fence bigint, budget text, used bigint)
UPDATE charges SET used = v.used, held = 0, open = 0
{from}
WHERE charges.run_id = v.run_id AND charges.fence = v.fence AND charges.budget = v.budget

-- name: delete_charges
DELETE FROM charges WHERE run_id {in:ids}

-- name: uncount
-- A budget that counts in other periods: what was taken since the one it is in began is counted there instead.
UPDATE accounts SET
    used = used - coalesce((SELECT sum(c.used) FROM charges c
        WHERE c.budget = accounts.budget AND c.period = accounts.period AND c.at >= :period), 0),
    held = held - coalesce((SELECT sum(c.held) FROM charges c
        WHERE c.budget = accounts.budget AND c.period = accounts.period AND c.at >= :period), 0)
WHERE budget = :budget

-- name: recount
INSERT INTO accounts (budget, period, used, held)
SELECT :budget, :period, coalesce(sum(used), 0), coalesce(sum(held), 0) FROM charges
WHERE budget = :budget AND at >= :period
ON CONFLICT (budget, period) DO UPDATE SET used = accounts.used + excluded.used, held = accounts.held + excluded.held

-- name: move_charges
UPDATE charges SET period = :period WHERE budget = :budget AND at >= :period

-- name: forget_charges
DELETE FROM charges WHERE budget = :budget

-- name: forget_accounts
DELETE FROM accounts WHERE budget = :budget

-- name: accounts_of
SELECT period, used, held FROM accounts WHERE budget = :budget AND (used > 0 OR held > 0)
ORDER BY period DESC LIMIT :limit

-- name: count_deferred
SELECT count(*) FROM runs WHERE state = 'ready' AND asleep = 1 AND namespace = :namespace
    AND substr(reason, 1, length(:prefix)) = :prefix

-- name: undefer
-- What was deferred for this reason may start at once.
UPDATE runs SET asleep = 0, fire_at = :now, reason = ''
WHERE id IN (SELECT id FROM runs WHERE state = 'ready' AND asleep = 1 AND namespace = :namespace
    AND substr(reason, 1, length(:prefix)) = :prefix)
RETURNING id

-- name: runs_ahead
SELECT {run} FROM runs
WHERE state = 'ready' AND asleep = 1 AND lane <> '' AND schedule_id {in:ids}
ORDER BY fire_at, id
LIMIT :limit
