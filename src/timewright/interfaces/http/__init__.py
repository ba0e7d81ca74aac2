"""The HTTP server: `/api/v1`, events, probes, pages and the OpenAPI description."""
