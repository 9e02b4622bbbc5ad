"""Meshes, placements and layouts: where each piece of a tensor lives."""
