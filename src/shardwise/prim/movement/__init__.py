"""Movement: primitives that bring elements to other places and devices, one file per family."""
