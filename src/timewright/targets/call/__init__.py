"""The call target: Python functions on threads, on an asyncio loop, or in worker processes."""
