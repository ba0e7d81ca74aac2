-- What an attempt says while it runs: the head and the tail of it, written over about once a second.
CREATE TABLE said (
    run_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    size BIGINT NOT NULL,
    cut BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, fence)
);
