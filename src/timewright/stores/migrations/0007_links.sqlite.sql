-- What one schedule asks of another's ends, and when such an end last came. `kind` is after or needs.
CREATE TABLE links (
    upstream TEXT NOT NULL,
    downstream TEXT NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    delay INTEGER NOT NULL DEFAULT 0,
    met_at INTEGER,
    met_by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (upstream, downstream, kind, outcome)
) STRICT, WITHOUT ROWID;
CREATE INDEX links_downstream ON links (downstream);
-- One row for each run that ended and each schedule that follows: the occurrence it made, once that is decided.
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
-- Runs that sleep until something they need has come.
CREATE TABLE waits (
    run_id TEXT NOT NULL PRIMARY KEY,
    schedule_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_schedule ON waits (schedule_id);
-- Runs that were made by hand for an instant ahead are found by their schedule.
CREATE INDEX runs_ahead ON runs (schedule_id, fire_at, id) WHERE state = 'ready' AND asleep = 1 AND lane <> '';
