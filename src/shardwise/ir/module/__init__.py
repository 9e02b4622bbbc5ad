"""What passes and interpreter alike read of a module."""
