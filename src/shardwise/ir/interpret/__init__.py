"""The interpreter: runs modules on global values, or on every device of a grid."""
