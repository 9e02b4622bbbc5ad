"""Benchmarks side by side with peers: `shardwise bench`, or `make bench`.

An area is a module that yields rows (`row.py`), each with ours, the peers and a floor, measured in turn in one process
where they can live in one. Each area runs in a process of its own (`process.py`); the report of all (`report.py`) is
shown as tables (`tables.py`), written as JSON, and as one HTML page with plots (`page.py`, `plots.py`).
"""
