"""The user's own optimizer as ops of a graph: whose update it is, and which parameters one op moves."""
