"""Experiments: many cases, each in a process of its own. Knows records, starts processes, and does not know torch."""
