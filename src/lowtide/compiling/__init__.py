"""`torch.compile(model, backend="lowtide")`: forward and backward inside a budget, in the user's own loop."""
