"""Section I: HTTP requests. `route` is the template of a route, never a path."""

from controller.kinds.mcpserver import STATES
from controller.metrics.catalogue.family import Family, counter, gauge, histogram

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
METHOD = {"method": ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
_DIRECTION = {"direction": ("in", "out")}

FAMILIES: tuple[Family, ...] = (
    counter("paddock_api_requests_total", "HTTP requests answered.", ("method", "route", "code"), values=METHOD),
    histogram(
        "paddock_api_request_duration_seconds",
        "Length of a request; streams are left out.",
        ("method", "route"),
        buckets=SHORT,
        values=METHOD,
    ),
    gauge("paddock_api_requests_in_flight", "Requests in progress.", at_start=0),
    gauge(
        "paddock_api_streams",
        "Open streams (logs, exec, cp, watch, ssh).",
        ("kind",),
        values={"kind": ("logs", "exec", "cp", "watch", "ssh")},
        at_start=0,
    ),
    counter("paddock_ssh_connections_total", "SSH connections to sandboxes."),
    gauge("paddock_ssh_open_connections", "Open SSH connections to sandboxes.", at_start=0),
    counter(
        "paddock_ssh_channels_total",
        "Channels of SSH connections: commands and shells, SFTP, connections to ports.",
        ("what",),
        values={"what": ("command", "files", "port")},
    ),
    counter(
        "paddock_ssh_refusals_total",
        "SSH logins at the port and channels that were refused, or failed to start.",
        ("what",),
        values={"what": ("login", "command", "files", "port")},
    ),
    counter(
        "paddock_ssh_bytes_total",
        "Bytes of channels of SSH connections, from (in) and to (out) clients.",
        ("direction",),
        values=_DIRECTION,
    ),
    counter("paddock_preview_links_total", "Links to ports of sandboxes that were made."),
    counter(
        "paddock_preview_requests_total",
        "Requests for previews; refused: no right, or no such preview; unavailable: nothing answers at the port.",
        ("outcome",),
        values={"outcome": ("passed", "refused", "unavailable")},
    ),
    gauge("paddock_preview_open_requests", "Requests and WebSockets of previews that are passed on now.", at_start=0),
    counter(
        "paddock_preview_bytes_total",
        "Bytes of bodies and WebSockets of previews, from (in) and to (out) clients.",
        ("direction",),
        values=_DIRECTION,
    ),
    counter(
        "paddock_api_auth_failures_total",
        "Refused for authentication or authorization.",
        ("reason",),
        values={"reason": ("unauthenticated", "forbidden")},
    ),
    counter(
        "paddock_mcp_tool_calls_total",
        "Calls of MCP tools; a refusal is a missing right, an error any other failure.",
        ("tool", "outcome"),
        values={"outcome": ("ok", "error", "refused", "cancelled")},
    ),
    counter(
        "paddock_mcp_server_calls_total",
        "Calls of tools of other people's MCP servers; refused: no such tool, or no start of the server.",
        ("namespace", "server", "outcome"),
        values={"outcome": ("ok", "error", "refused", "cancelled")},
    ),
    histogram(
        "paddock_mcp_server_call_duration_seconds",
        "Length of a call of a tool of other people's MCP servers, with the start of a session if it needed one.",
        ("namespace", "server"),
        buckets=SHORT,
    ),
    gauge(
        "paddock_mcp_sessions",
        "Running sessions of other people's MCP servers; sandboxed false: as processes of their users.",
        ("sandboxed",),
        values={"sandboxed": ("true", "false")},
        at_start=0,
    ),
    gauge(
        "paddock_mcp_servers",
        "MCPServers by trust and state.",
        ("trust", "state"),
        values={"trust": ("user_added", "verified"), "state": STATES},
        at_start=0,
    ),
    counter(
        "paddock_apply_objects_total",
        "Objects applied (created, configured, unchanged, pruned), and refused calls (invalid, conflict).",
        ("kind", "result"),
        values={"result": ("created", "configured", "unchanged", "pruned", "invalid", "conflict")},
    ),
)
