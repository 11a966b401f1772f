"""Experiment: estimates of `lowtide fit` against measured steps, on this machine."""
