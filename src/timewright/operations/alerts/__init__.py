"""Alerts: incidents, channels, thresholds, and reports of work that runs elsewhere."""
