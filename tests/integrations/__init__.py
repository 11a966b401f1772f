"""lowtide inside of frameworks."""
