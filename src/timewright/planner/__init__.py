"""The planner: advisors that give hints to schedules. It uses the operations, never the engine."""
