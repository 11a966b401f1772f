"""lowtide: PyTorch training that fits a number of bytes, bit for bit equal."""
