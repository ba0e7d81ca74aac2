"""The publish target: messages to brokers and job queues, one module for each in `brokers`."""
