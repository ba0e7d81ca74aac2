-- How much of each budget was used in each period, and how much those under way are expected to use.
CREATE TABLE accounts (
    budget TEXT NOT NULL,
    period INTEGER NOT NULL,
    used INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (budget, period)
) STRICT, WITHOUT ROWID;

-- What each lease took from each budget; an open one is not known yet.
CREATE TABLE charges (
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

CREATE INDEX charges_budget ON charges (budget, at);

-- What an attempt said it cost.
ALTER TABLE attempts ADD COLUMN cost TEXT NOT NULL DEFAULT '';
