"""Records in, files out: CSV, JSON, PNG."""
