"""Routes: what one process does in a plan."""
