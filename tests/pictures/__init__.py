"""Pictures of the dashboards, to be looked at: `make dashboards`, or `python -m tests.pictures FOLDER`.

A real daemon keeps real, busy sandboxes; a real Prometheus scrapes it; each panel is asked as Grafana would ask, and
drawn by its type, unit, legend, thresholds and place. It is a sketch of Grafana, close enough to see what is empty,
crowded, without a unit or overlapping.
"""
