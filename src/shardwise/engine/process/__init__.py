"""The engine of one process per device."""
