"""The clients of the brokers, each with its options."""
