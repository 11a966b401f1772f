"""Experiment: policies on problem files, without torch."""
