"""The HTTP door: `/api/v1` made from the one list, beside probes, events and a description of itself."""
