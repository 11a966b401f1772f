"""What of the user's Python a trace reads and changes: seen while it runs, compared before each step, put back."""
