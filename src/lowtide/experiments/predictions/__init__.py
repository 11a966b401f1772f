"""Experiment: how good the predictions of all the others were."""
