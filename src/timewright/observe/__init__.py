"""Listens. Facts become log lines, numbers and traces; nothing here decides or keeps anything."""
