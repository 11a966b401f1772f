"""Measures a captured step op by op, or estimates it, and makes the problem that the planner gets."""
