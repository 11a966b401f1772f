"""Whole pages, made from all the records in a folder: the report of one step, the analysis of all experiments."""
