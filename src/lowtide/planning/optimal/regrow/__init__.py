"""Ruin and recreate over orders of runs, in compiled code: for programs of any size and shape."""
