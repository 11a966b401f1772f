"""Experiment: what budgets cost, against eager and captured steps."""
