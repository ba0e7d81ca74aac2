"""Incoming requests: parsing, authentication, sessions, host check and limits."""
