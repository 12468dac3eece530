"""Every call of E2B's protocol: where it is served, and what differs. Routes and the README's table are made of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Place = Literal["control", "envd", "interpreter"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `form` is how it is answered, `name` the method that does; `client` what a program calls.

    `difference` is how it differs from E2B's; for the form `refusal` it is the refusal.
    """

    place: Place
    method: str
    path: str
    form: str
    name: str = ""
    client: str = ""
    difference: str = ""


_P, _F = "/process.Process", "/filesystem.Filesystem"
_ID = "/sandboxes/{id}"
_CREATE = "iam, mcp and volumes are refused; the network only narrows; envs are in no spec"
_LIST = "those that E2B's clients created, in the key's namespace"
_INFO = "a paused one has no time-out, and an endAt 30 days ahead"
_PAUSE = "hibernated where the host can, else frozen; without memory stopped, its files kept"
_METRICS = "the last hour, since the daemon's start; the disk is the writable layer and what is in memory"
_NETWORK = "narrows by host names; addresses and what would widen are refused"
_TEMPLATES = "SandboxTemplates, pools and e2b_templates; with E2B's default sizes"
_READ = "always as an attachment; files of /proc and the like are refused"
_WRITE = "metadata of files is refused"
_START = "by bash, as the sandbox's own user; no figure of the pid is the sandbox's own"
_JOIN = "after a restart of the daemon not those with stdin or a terminal"
_ENTRY = "owner and group are numbers, or root"
_MOVE = "within one file system"
_WATCH = "by inotify; where the host has none left, and with entries, listings are compared four times a second"
_LANGUAGES = "python, javascript and bash, if the image has them; others are refused"
_BUILDS = "template builds are not offered; build an image, and name it as the template"
_VOLUMES = "volumes are not offered in this protocol; name a SandboxTemplate with `volumes:` as the template"
_SECRETS = "secrets are not offered in this protocol; `paddock secret set NAME` keeps one, which a template names"
_LOGS = "logs are not offered in this protocol; `paddock logs NAME` shows them"
_DELETE = "deletes snapshots only; a template is deleted by `paddock delete`"
_SNAPSHOTS = "files at one instant; processes and memory are not copied"

CALLS: Sequence[Call] = (
    Call("control", "POST", "/v2/sandboxes", "create", client="Sandbox.create", difference=_CREATE),
    Call("control", "POST", "/sandboxes", "create", client="Sandbox.create", difference=_CREATE),
    Call("control", "GET", "/v2/sandboxes", "list", client="Sandbox.list", difference=_LIST),
    Call("control", "GET", "/sandboxes", "list", client="Sandbox.list", difference=_LIST),
    Call("control", "GET", _ID, "get", client="get_info", difference=_INFO),
    Call("control", "DELETE", _ID, "kill", client="kill"),
    Call("control", "POST", _ID + "/timeout", "timeout", client="set_timeout"),
    Call("control", "POST", _ID + "/refreshes", "timeout", "refresh"),
    Call("control", "POST", _ID + "/pause", "pause", client="pause", difference=_PAUSE),
    Call("control", "POST", "/v2/sandboxes/{id}/connect", "connect", client="Sandbox.connect"),
    Call("control", "POST", _ID + "/connect", "connect", client="Sandbox.connect"),
    Call("control", "POST", _ID + "/resume", "connect", client="Sandbox.resume"),
    Call("control", "GET", _ID + "/metrics", "metrics", client="get_metrics", difference=_METRICS),
    Call("control", "PUT", _ID + "/network", "network", client="update_network", difference=_NETWORK),
    Call("control", "POST", _ID + "/fork", "fork", client="fork", difference=_SNAPSHOTS),
    Call("control", "POST", _ID + "/snapshots", "snapshot", client="create_snapshot", difference=_SNAPSHOTS),
    Call("control", "GET", "/snapshots", "snapshots", client="list_snapshots"),
    Call("control", "GET", "/templates", "templates", "list", "Template.list", difference=_TEMPLATES),
    Call("control", "GET", "/v2/templates", "templates", "list", "Template.list", difference=_TEMPLATES),
    Call("control", "GET", "/default-templates", "templates", "list", difference=_TEMPLATES),
    Call("control", "GET", "/templates/aliases/{id:path}", "template", "alias", "Template.exists"),
    Call("control", "GET", "/templates/{id}", "template", "get", difference=_TEMPLATES),
    Call("control", "DELETE", "/templates/{id:path}", "delete_template", client="delete_snapshot", difference=_DELETE),
    Call("control", "POST", "/v3/templates", "refusal", client="Template.build", difference=_BUILDS),
    Call("control", "POST", "/v2/templates", "refusal", client="Template.build", difference=_BUILDS),
    Call("control", "POST", "/templates", "refusal", client="Template.build", difference=_BUILDS),
    Call("control", "POST", "/volumes", "refusal", client="Volume.create", difference=_VOLUMES),
    Call("control", "GET", "/volumes", "refusal", client="Volume.list", difference=_VOLUMES),
    Call("control", "POST", "/secrets", "refusal", client="Secret.create", difference=_SECRETS),
    Call("control", "GET", "/secrets", "refusal", client="Secret.list", difference=_SECRETS),
    Call("control", "GET", _ID + "/logs", "refusal", difference=_LOGS),
    Call("control", "GET", "/v2/sandboxes/{id}/logs", "refusal", difference=_LOGS),
    Call("envd", "GET", "/health", "health", client="is_running"),
    Call("envd", "GET", "/files", "download", client="files.read, download_url", difference=_READ),
    Call("envd", "POST", "/files", "upload", client="files.write, files.write_files, upload_url", difference=_WRITE),
    Call("envd", "POST", _P + "/Start", "stream", "start", "commands.run, pty.create", difference=_START),
    Call("envd", "POST", _P + "/Connect", "stream", "connect", "commands.connect, pty.connect", difference=_JOIN),
    Call("envd", "POST", _P + "/List", "unary", "list_all", "commands.list"),
    Call("envd", "POST", _P + "/SendInput", "unary", "send_input", "commands.send_stdin, pty.send_stdin"),
    Call("envd", "POST", _P + "/StreamInput", "input", client="commands.stream_input"),
    Call("envd", "POST", _P + "/SendSignal", "unary", "send_signal", "commands.kill, pty.kill"),
    Call("envd", "POST", _P + "/CloseStdin", "unary", "close_stdin", "close_stdin"),
    Call("envd", "POST", _P + "/Update", "unary", "update", "pty.resize"),
    Call("envd", "POST", _F + "/Stat", "unary", "stat", "files.get_info, files.exists", difference=_ENTRY),
    Call("envd", "POST", _F + "/ListDir", "unary", "list_dir", "files.list", difference=_ENTRY),
    Call("envd", "POST", _F + "/MakeDir", "unary", "make_dir", "files.make_dir"),
    Call("envd", "POST", _F + "/Move", "unary", "move", "files.rename", difference=_MOVE),
    Call("envd", "POST", _F + "/Remove", "unary", "remove", "files.remove"),
    Call("envd", "POST", _F + "/WatchDir", "stream", "watch_dir", "files.watch_dir", _WATCH),
    Call("envd", "POST", _F + "/CreateWatcher", "unary", "create_watcher", "files.watch_dir", _WATCH),
    Call("envd", "POST", _F + "/GetWatcherEvents", "unary", "get_watcher_events", "get_new_events"),
    Call("envd", "POST", _F + "/RemoveWatcher", "unary", "remove_watcher", "stop"),
    Call("interpreter", "GET", "/health", "health"),
    Call("interpreter", "POST", "/execute", "execute", client="run_code", difference=_LANGUAGES),
    Call("interpreter", "GET", "/contexts", "contexts", client="list_code_contexts"),
    Call("interpreter", "POST", "/contexts", "new_context", client="create_code_context", difference=_LANGUAGES),
    Call("interpreter", "DELETE", "/contexts/{id}", "context", "delete_context", "remove_code_context"),
    Call("interpreter", "POST", "/contexts/{id}/restart", "context", "restart_context", "restart_code_context"),
)
