"""Experiments: a folder for each, with its run, its record and its report; beside them what several share."""
