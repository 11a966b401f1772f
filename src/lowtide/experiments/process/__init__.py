"""Experiment: what a step takes of the process, as the operating system counts, with a plan and without."""
