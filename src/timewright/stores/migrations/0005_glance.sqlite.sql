-- What failed, and what does not run, are found without walking what does.
CREATE INDEX runs_failed ON runs (id, namespace, queue, planned_at) WHERE state = 'failed';
CREATE INDEX schedules_resting ON schedules (state, namespace, name) WHERE state <> 'active';
