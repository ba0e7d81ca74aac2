"""Access: callers, API keys, secrets, namespaces, rate limits and the audit log."""
