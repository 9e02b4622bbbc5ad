"""The flight recorder: the last calls of every process, kept where they outlive it, and what they tell afterwards."""
