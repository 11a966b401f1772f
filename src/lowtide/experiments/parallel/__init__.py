"""Experiment: steps on several ranks, by DDP and FSDP2 with their own switches, and by plans at the same peaks."""
