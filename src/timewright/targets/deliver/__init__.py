"""Sends messages of channels."""
