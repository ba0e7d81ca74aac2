"""Messages into brokers and engines people already run, one file for each of them."""
