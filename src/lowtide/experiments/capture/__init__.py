"""Experiment: captured steps against eager ones."""
