"""Alerts: findings about the store, incidents, and their delivery to subscribers."""
