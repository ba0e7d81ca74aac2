"""Child processes: start, read output, and end whole process trees."""
