"""Passes over modules: work out shardings, make the program of each device, simplify it."""
