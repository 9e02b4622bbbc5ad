"""The commands, one file each; what they need is imported when they run."""
