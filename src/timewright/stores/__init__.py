"""Remembers. One behaviour, two dialects: SQLite and PostgreSQL."""
