"""Test kit: a manual clock, a bench that runs an instance step by step, scripted targets, a real server."""
