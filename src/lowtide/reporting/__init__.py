"""Records in, files out: CSV, JSON, PNG, HTML, GIF, traces."""
