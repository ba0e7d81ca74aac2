-- How much of each budget was used in each period, and how much those under way are expected to use.
CREATE TABLE accounts (
    budget TEXT COLLATE "C" NOT NULL,
    period BIGINT NOT NULL,
    used BIGINT NOT NULL DEFAULT 0,
    held BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (budget, period)
);

-- What each lease took from each budget; an open one is not known yet.
CREATE TABLE charges (
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

CREATE INDEX charges_budget ON charges (budget, at);

-- What an attempt said it cost.
ALTER TABLE attempts ADD COLUMN cost TEXT COLLATE "C" NOT NULL DEFAULT '';
