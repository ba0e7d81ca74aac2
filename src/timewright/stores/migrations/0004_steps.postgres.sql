-- Where the steps of workflow runs stand; the row of the empty step is the run as a whole. A step has a row once
-- something it needs is settled, or once it has started: what counts is kept, so that no step is ever looked for.
CREATE TABLE steps (
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
);
