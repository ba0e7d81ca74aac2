"""Web frameworks: their commands, their contexts around calls, and where they find a scheduler."""
