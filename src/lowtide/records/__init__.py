"""The records of the pipeline: frozen, torch-free, saved as versioned JSON."""
