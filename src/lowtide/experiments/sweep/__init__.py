"""Experiment: several batch sizes, with and without a plan."""
