"""A schedule turned back into a step, and the proof that it is the same step."""
