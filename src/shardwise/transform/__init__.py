"""Functions made of functions of tensors: derivatives, and maps."""
