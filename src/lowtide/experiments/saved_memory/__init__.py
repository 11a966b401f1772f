"""Experiment: one step, eager and planned, sampled while it runs, as a moving picture."""
