"""Experiment: what capture, measuring and planning cost when the same model is made deeper."""
