"""Alerts: findings, thresholds, expectations, incidents, channels."""
