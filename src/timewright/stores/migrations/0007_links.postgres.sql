-- What one schedule asks of another's ends, and when such an end last came. `kind` is after or needs.
CREATE TABLE links (
    upstream TEXT COLLATE "C" NOT NULL,
    downstream TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    delay BIGINT NOT NULL DEFAULT 0,
    met_at BIGINT,
    met_by TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (upstream, downstream, kind, outcome)
);
CREATE INDEX links_downstream ON links (downstream);
-- One row for each run that ended and each schedule that follows: the occurrence it made, once that is decided.
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
-- Runs that sleep until something they need has come.
CREATE TABLE waits (
    run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    schedule_id TEXT COLLATE "C" NOT NULL
);
CREATE INDEX waits_schedule ON waits (schedule_id);
-- Runs that were made by hand for an instant ahead are found by their schedule.
CREATE INDEX runs_ahead ON runs (schedule_id, fire_at, id) WHERE state = 'ready' AND asleep = 1 AND lane <> '';
