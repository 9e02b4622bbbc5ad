"""The commands that need more than the core, one file each; what they need is imported when they run."""
