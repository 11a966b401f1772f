"""Experiment: what `lowtide fit` says of runs that others have published."""
