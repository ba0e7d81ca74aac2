-- Where schedules stand: narrow rows that change often. What they say is in `revisions`.
CREATE TABLE schedules (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    grouped TEXT COLLATE "C" NOT NULL DEFAULT '',
    revision BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    decided_to BIGINT NOT NULL,
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
    hints TEXT COLLATE "C" NOT NULL DEFAULT '',
    last_run TEXT COLLATE "C" NOT NULL DEFAULT '',
    shard BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX schedules_name ON schedules (namespace, name);
CREATE INDEX schedules_wake ON schedules (wake_at, id) WHERE wake_at IS NOT NULL;

-- What a schedule said at each revision.
CREATE TABLE revisions (
    schedule_id TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (schedule_id, revision)
);

-- One row per occurrence whatever its fate, and one per queue entry. Ids sort by time.
CREATE TABLE runs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    lane TEXT COLLATE "C" NOT NULL DEFAULT '',
    planned_at BIGINT NOT NULL,
    fire_at BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    asleep BIGINT NOT NULL DEFAULT 0,
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    source TEXT COLLATE "C" NOT NULL DEFAULT '',
    revision BIGINT NOT NULL DEFAULT 0,
    queue TEXT COLLATE "C" NOT NULL DEFAULT '',
    line TEXT COLLATE "C" NOT NULL DEFAULT '',
    priority BIGINT NOT NULL DEFAULT 100,
    alone BIGINT NOT NULL DEFAULT 1,
    handoff BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0,
    refunds BIGINT NOT NULL DEFAULT 0,
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
    word TEXT COLLATE "C" NOT NULL DEFAULT '',
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    parent TEXT COLLATE "C" NOT NULL DEFAULT '',
    previous TEXT COLLATE "C" NOT NULL DEFAULT '',
    extra TEXT COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 70);

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
    word TEXT COLLATE "C" NOT NULL DEFAULT '',
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    result TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, fence)
);

-- Ceilings: how many leases a gate admits, and which runs it has let through.
CREATE TABLE gates (
    gate TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    most BIGINT NOT NULL
);

CREATE TABLE holds (
    gate TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    PRIMARY KEY (gate, run_id)
);

CREATE INDEX holds_run ON holds (run_id);

-- Small named things with a revision: queue policies, limits, calendars, workflows.
CREATE TABLE objects (
    kind TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);

-- Who changed what; append-only, each line carries the hash of the one before.
CREATE TABLE audit (
    seq BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    origin TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    before TEXT COLLATE "C" NOT NULL DEFAULT '',
    after TEXT COLLATE "C" NOT NULL DEFAULT '',
    reason TEXT COLLATE "C" NOT NULL DEFAULT '',
    chain TEXT COLLATE "C" NOT NULL
);

CREATE TABLE meta (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);
