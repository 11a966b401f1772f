"""Experiment: lowtide's backend of torch.compile against torch's own memory budget, on the same executor."""
