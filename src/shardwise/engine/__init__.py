"""Engines: what executes plans, and the arrays that devices hold; they fill a slot of the rooms below."""

from shardwise.engine import calibration
from shardwise.plan.cost import measure_links

measure_links.fill(calibration.measure)
