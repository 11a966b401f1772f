"""The planner: pure data in, an order of ops out. Nothing in here imports torch."""
