"""Dependencies between schedules: links, and what an upstream end means for followers."""
