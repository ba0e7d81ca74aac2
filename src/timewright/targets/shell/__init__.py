"""The shell target: commands with a clean environment and limits."""
