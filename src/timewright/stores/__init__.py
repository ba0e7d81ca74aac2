"""Stores on SQLite and PostgreSQL with the same behaviour. `queries` is shared by both."""
