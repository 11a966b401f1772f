"""The captured step: ops, storages, liveness, the program that runs it."""
