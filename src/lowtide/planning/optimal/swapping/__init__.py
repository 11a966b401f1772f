"""Swapping beside recomputing: which values leave the device, when, and what is left for recomputation to do."""
