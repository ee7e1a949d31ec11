"""The same rows for a terminal and as JSON."""
