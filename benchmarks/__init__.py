"""Benchmarks: one module for each question, with the conditions and the libraries compared."""
