"""The one place that knows what device memory and device time are."""
