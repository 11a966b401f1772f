"""Training on several ranks: how a model is spread over them, and how they agree on one graph and one plan."""
