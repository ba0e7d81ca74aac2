"""The invariants, one module for each area; importing a module registers its invariants."""
