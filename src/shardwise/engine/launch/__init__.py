"""Launching the processes of a program on this host."""
