"""What a profile, a plan or a training run looks like: CSV, PNG, GIF, traces, tables for the terminal."""
