"""Numbered, forward-only changes of the schema; one file per dialect and step."""
