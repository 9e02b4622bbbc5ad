"""The engine whose devices all live in this process."""
