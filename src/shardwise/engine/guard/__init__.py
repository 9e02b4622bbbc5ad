"""The guard: processes agree on every call, and who is missing is named."""
