"""From a measured step to a planning problem, and from a schedule back to a step."""
