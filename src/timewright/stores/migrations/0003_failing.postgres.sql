-- Schedules that failed last are few: a success looks here whether there is anything to forget.
CREATE INDEX schedules_failing ON schedules (id) WHERE failures > 0;
