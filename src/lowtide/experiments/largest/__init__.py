"""Experiment: the largest batch that trains under a hard memory limit."""
