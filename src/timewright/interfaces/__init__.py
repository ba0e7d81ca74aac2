"""The interfaces: Python, command line, HTTP, MCP and dashboard. They only translate; operations decide."""
