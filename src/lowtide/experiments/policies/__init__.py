"""Experiment: every policy from slack to the floor."""
