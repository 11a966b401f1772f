"""Experiment: how long it takes until a planned step is ready, and what guards and sentinel cost after that."""
