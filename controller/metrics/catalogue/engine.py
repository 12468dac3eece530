"""Section F: calls to the Docker daemon, and its stream of events."""

from controller.metrics.catalogue.family import Family, counter, gauge, histogram

LONG = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# An event's action may carry a whole command line (`exec_create: ...`): what is not listed is `other`.
EVENTS = (
    "create",
    "start",
    "die",
    "oom",
    "kill",
    "stop",
    "pause",
    "unpause",
    "rename",
    "update",
    "destroy",
    "health_status",
)

FAMILIES: tuple[Family, ...] = (
    counter("paddock_docker_requests_total", "Calls to the Docker API.", ("operation",)),
    counter(
        "paddock_docker_request_errors_total",
        "Calls that failed (4xx class, 5xx, timeout, connection).",
        ("operation", "reason"),
        values={"reason": ("4xx", "5xx", "timeout", "connection")},
    ),
    histogram("paddock_docker_request_duration_seconds", "Length of a call.", ("operation",), buckets=LONG),
    gauge("paddock_docker_requests_in_flight", "Calls in progress.", at_start=0),
    counter(
        "paddock_docker_events_total",
        "Container events received for managed containers (create, start, die, oom, kill, health_status, ...).",
        ("action",),
        values={"action": EVENTS},
    ),
    gauge("paddock_docker_event_stream_connected", "1 while the event stream is open.", at_start=0),
    counter("paddock_docker_event_stream_reconnects_total", "Event stream re-opened."),
    gauge("paddock_docker_last_event_timestamp_seconds", "timeNano of the last event seen.", unit="seconds"),
)
