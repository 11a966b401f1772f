"""The reference models, from configurations, with random weights and synthetic batches."""
