"""The engine of one instance: it ticks, launches runs, settles their results, renews leases and stops."""
