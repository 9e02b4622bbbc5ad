"""Dispatch: how an op is run, by its factor rule and the layouts of its operands."""
