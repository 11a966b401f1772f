"""Hypothesis here: the same cases on every run, and no failure because the machine is busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("lowtide", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lowtide")
