"""Health: the doctor, overview, instances, overdue items, load forecast and verification."""
