"""The test kit: a clock moved by hand and a PostgreSQL of one's own, the same ones our own tests use."""
