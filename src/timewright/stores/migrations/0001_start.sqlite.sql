-- Where schedules stand: narrow rows that change often. What they say is in `revisions`.
CREATE TABLE schedules (
    id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    grouped TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    decided_to INTEGER NOT NULL,
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
    hints TEXT NOT NULL DEFAULT '',
    last_run TEXT NOT NULL DEFAULT '',
    shard INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX schedules_name ON schedules (namespace, name);
CREATE INDEX schedules_wake ON schedules (wake_at, id) WHERE wake_at IS NOT NULL;

-- What a schedule said at each revision.
CREATE TABLE revisions (
    schedule_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (schedule_id, revision)
) STRICT, WITHOUT ROWID;

-- One row per occurrence whatever its fate, and one per queue entry. Ids sort by time.
CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    schedule_id TEXT NOT NULL DEFAULT '',
    lane TEXT NOT NULL DEFAULT '',
    planned_at INTEGER NOT NULL,
    fire_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    asleep INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    source TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL DEFAULT 0,
    queue TEXT NOT NULL DEFAULT '',
    line TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 100,
    alone INTEGER NOT NULL DEFAULT 1,
    handoff INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    refunds INTEGER NOT NULL DEFAULT 0,
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
    word TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    parent TEXT NOT NULL DEFAULT '',
    previous TEXT NOT NULL DEFAULT '',
    extra TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- The gate of exactly-once. It begins with the planned instant so that it grows at its end.
CREATE UNIQUE INDEX runs_occurrence ON runs (planned_at, schedule_id, lane);
-- One in flight, for every overlap but allow.
CREATE UNIQUE INDEX runs_one_in_flight ON runs (schedule_id)
    WHERE alone = 1 AND schedule_id <> '' AND state IN ('ready', 'leased');
CREATE INDEX runs_line ON runs (handoff, line, priority, planned_at, id) WHERE state = 'ready' AND asleep = 0;
CREATE INDEX runs_asleep ON runs (fire_at) WHERE state = 'ready' AND asleep = 1;
CREATE INDEX runs_leased ON runs (leased_at) WHERE state = 'leased';
CREATE INDEX runs_asked_to_stop ON runs (cancel_at) WHERE state = 'leased' AND cancel_at IS NOT NULL;
CREATE INDEX runs_held ON runs (schedule_id, planned_at) WHERE state = 'held';
CREATE INDEX runs_parked ON runs (planned_at) WHERE state = 'parked';
CREATE INDEX runs_parent ON runs (parent) WHERE parent <> '';

-- One row per lease that ended.
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
    word TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    result TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, fence)
) STRICT, WITHOUT ROWID;

-- Ceilings: how many leases a gate admits, and which runs it has let through.
CREATE TABLE gates (
    gate TEXT NOT NULL PRIMARY KEY,
    most INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE holds (
    gate TEXT NOT NULL,
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (gate, run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holds_run ON holds (run_id);

-- Small named things with a revision: queue policies, limits, calendars, workflows.
CREATE TABLE objects (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) STRICT, WITHOUT ROWID;

-- Who changed what; append-only, each line carries the hash of the one before.
CREATE TABLE audit (
    seq INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT NOT NULL DEFAULT '',
    after TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    chain TEXT NOT NULL
) STRICT;

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
