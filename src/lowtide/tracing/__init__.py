"""Traces one whole training iteration into a StepGraph."""
