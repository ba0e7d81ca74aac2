-- Schedules that wait for a person are few, and asked for often.
CREATE INDEX schedules_parked ON schedules (namespace, name) WHERE state = 'parked';
