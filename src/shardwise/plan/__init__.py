"""Plans: the steps, and the bytes, that take a tensor from one layout to another."""
