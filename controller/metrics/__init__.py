"""Metrics: the only package that imports prometheus_client. A scrape reads the last snapshot and cgroup files.

It never calls Docker or SQL. `catalogue/` lists all metrics; `meter.py` publishes the counts of other packages;
`containers.py`, `objects.py` and `host.py` publish the snapshot; `render.py` writes the text; `server.py` serves it.
"""
