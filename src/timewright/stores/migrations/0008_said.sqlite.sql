-- What an attempt says while it runs: the head and the tail of it, written over about once a second.
CREATE TABLE said (
    run_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    cut INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, fence)
) STRICT;
