"""Engines: what executes plans, and the arrays that devices hold."""
