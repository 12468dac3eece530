"""METRICS: the only room that imports prometheus_client. A scrape reads the last snapshot and the cgroup files.

It never calls Docker or SQL. `catalogue/` lists all that is exported; `meter.py` publishes what other rooms count;
`containers.py`, `objects.py` and `host.py` publish the snapshot; `render.py` writes the text; `server.py` serves it.
"""
