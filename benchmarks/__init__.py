"""How fast, against whom, under which conditions: one module a question."""
