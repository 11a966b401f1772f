"""What flows between the stages: frozen, torch-free, saved as versioned JSON."""
