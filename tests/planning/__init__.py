"""Tests of the torch-free planner, and what they share."""
