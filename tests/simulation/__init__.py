"""A deterministic simulation: real engines on a real store, with clocks and faults from one seed."""
