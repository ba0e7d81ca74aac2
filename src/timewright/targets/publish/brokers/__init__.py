"""One module per broker: its options and its client."""
