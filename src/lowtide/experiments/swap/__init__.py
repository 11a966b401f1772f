"""Experiment: recomputing only, swapping only, and both."""
