"""The Python interface: `Scheduler` and `AsyncScheduler` for use inside an application."""
