"""Runs a captured step op by op and measures it."""
