"""The HTTP target: requests, egress policy, responses."""
