"""Random values, and new tensors of which each device makes its part."""
