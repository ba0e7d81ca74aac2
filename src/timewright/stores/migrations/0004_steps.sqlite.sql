-- Where the steps of workflow runs stand; the row of the empty step is the run as a whole. A step has a row once
-- something it needs is settled, or once it has started: what counts is kept, so that no step is ever looked for.
CREATE TABLE steps (
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
