"""The page of `lowtide fit`."""
