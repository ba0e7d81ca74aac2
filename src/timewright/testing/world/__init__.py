"""A whole fleet in one thread: real engines and stores, clocks and chance from one seed, and faults."""
