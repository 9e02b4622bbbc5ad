"""The meeting: how the processes of a job find each other, prove that they belong to it, and connect."""
