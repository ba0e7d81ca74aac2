"""Endpoints that are not operations: probes, events, pages, the calendar feed and MCP."""
