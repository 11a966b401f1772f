"""Addresses: where in one block of memory everything of a schedule lives. Docs: docs/arena.md."""
