"""Commands that run a process or maintain a store, instead of calling one operation."""
