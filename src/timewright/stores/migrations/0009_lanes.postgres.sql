-- A run in a lane of its own is told from all others by its id. The gate is for those that stand for an occurrence
-- or share a lane; every write of the others is spared one entry.
DROP INDEX runs_occurrence;
CREATE UNIQUE INDEX runs_occurrence ON runs (planned_at, schedule_id, lane) WHERE lane <> id;
