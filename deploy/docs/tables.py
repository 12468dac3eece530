"""Tables of settings, metrics, alerts, levels, roles, exit codes and operations, made from the code that has them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from controller.cli.commands.access.token import token_
from controller.e2b.calls import CALLS
from controller.kinds.access.access import PeerGrant
from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.registry import discover
from controller.kinds.securityprofile import ALIASES, ProfileGrants
from controller.mcp.tools.registry import TOOLS
from controller.metrics.catalogue import (
    CATALOGUE,
    agents,
    api,
    containers,
    engine,
    host,
    loop,
    objects,
    own,
    pools,
    quotas,
)
from controller.metrics.catalogue import store as store_metrics
from controller.metrics.catalogue.family import Family
from controller.policy.levels.levels import BUILT_IN, SHARED_USER, Level
from controller.settings import Settings
from deploy.docs.fields import cell

ROOT = Path(__file__).parents[2]
# Settings by subject; those that are named nowhere come last.
_SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "Store and daemon": (
        "state_dir", "database_url", "standby", "docker_host", "engine_timeout_seconds", "workers", "resync_seconds",
        "log_format", "log_level",
    ),
    "Who may do what": (
        "socket", "socket_group", "socket_group_role", "access", "api_host", "api_port", "tls_cert_file",
        "tls_key_file", "requests_per_second", "requests_in_flight", "caller_share", "stall_seconds",
    ),
    "Metrics": (
        "metrics_host", "metrics_port", "metrics_token_file", "metrics_tls_cert_file", "metrics_tls_key_file",
        "metrics_detail", "metrics_labels",
    ),
    "Images": (
        "allowed_images", "images_by_digest", "local_registries", "prune_images", "image_grace_seconds",
    ),
    "Image builds": (
        "image_build", "image_build_seconds", "image_context_bytes", "image_max_bytes", "push_registries",
    ),
    "Confinement": (
        "profile_grants", "runtimes", "apparmor_profiles", "selinux_types", "attestation", "gpu_devices",
    ),
    "Network": (
        "network_range", "guard_lost", "canary_seconds", "package_sources", "package_hosts", "local_network", "peers",
    ),
    "Data": (
        "host_roots", "mounts_dir", "secrets_dir", "volumes_per_namespace_bytes", "suspend_files_bytes",
        "artifacts_per_namespace_bytes",
        "objects_per_namespace", "annotations_per_namespace_bytes",
    ),
    "Commands, files and ports": (
        "exec_timeout_seconds", "exec_max_seconds", "exec_per_sandbox", "exec_output_bytes", "transfers",
        "transfers_per_sandbox", "transfer_max_bytes", "transfer_stall_seconds", "port_connections",
        "port_connections_per_sandbox",
    ),
    "Care of the host": ("pressure_scale", "orphan_grace_seconds", "orphan_share"),
}  # fmt: skip
_COMPUTED = {
    "state_dir": "`/var/lib/paddock`",
    "socket": "`/run/paddock/paddock.sock`",
}
_SECTIONS: Mapping[str, tuple[Family, ...]] = {
    "Containers": containers.FAMILIES,
    "Objects": objects.FAMILIES,
    "Pools": pools.FAMILIES + pools.CLAIMS,
    "Quotas": quotas.FAMILIES + quotas.WAITING,
    "Host and engine": host.FAMILIES + engine.FAMILIES,
    "Reconcile loop": loop.FAMILIES,
    "Store": store_metrics.FAMILIES,
    "API": api.FAMILIES,
    "Agents and MCP": agents.FAMILIES,
    "The daemon itself": own.FAMILIES,
}


def table(titles: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return "\n".join([*lines, *(f"| {' | '.join(each)} |" for each in rows)])


def settings() -> str:
    """Return every setting, a table for each subject."""
    named = {name for names in _SUBJECTS.values() for name in names}
    unknown = sorted(named - Settings.model_fields.keys())
    assert not unknown, f"these settings are gone: {unknown}"
    rest = tuple(name for name in Settings.model_fields if name not in named)
    subjects = {**_SUBJECTS, **({"More": rest} if rest else {})}
    parts = []
    for subject, names in subjects.items():
        rows = ((f"`{name}`", _setting_default(name), _setting_meaning(name)) for name in names)
        parts.append(f"### {subject}\n\n{table(('setting', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _setting_default(name: str) -> str:
    info = Settings.model_fields[name]
    if name in _COMPUTED:
        return _COMPUTED[name]
    value = info.default
    if value is None or value in ("", ()) or name == "profile_grants":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(repr, value))}]`".replace("'", '"')
    return f"`{value}`"


def _setting_meaning(name: str) -> str:
    info = Settings.model_fields[name]
    text = str(info.description or "")
    for said in ("; default: none", "; default: empty", "default: "):
        # The default has a column of its own.
        text = text.split(said, maxsplit=1)[0] if said != "default: " else text.split("; default: ", maxsplit=1)[0]
    bounds = _setting_bounds(info)
    return cell(f"{text}{f' ({bounds})' if bounds else ''}")


def _setting_bounds(info: FieldInfo) -> str:
    values: dict[str, Any] = {}
    for each in info.metadata:
        for name in ("ge", "gt", "le"):
            if getattr(each, name, None) is not None:
                values[name] = getattr(each, name)
    low = values.get("ge", values.get("gt"))
    high = values.get("le")
    if high is not None and low is not None:
        return f"{low:g} to {high:g}" if high < 1e6 else f"{low:g} or more"
    return ""


def grants() -> str:
    """Return the fields of an entry of `access`, which are those of a token's grant."""
    meaning = {
        "subject": "`user:NAME`, `uid:NUMBER`, `group:NAME` or `gid:NUMBER` (settings only)",
        "role": "`viewer`, `user`, `operator` or `admin`",
        "namespaces": "names, or beginnings such as `team-*`; `*` for all and for what belongs to the host",
        "levels": "security levels that specs may name",
        "images": "images that specs may name; `*` at the end, after `/`, `:` or `@`",
        "requireDigest": "images only by digest, `NAME@sha256:...`",
        "limits": "highest `cpu`, `memory`, `pids`, `disk` and `gpus` of one sandbox (disk and gpus: settings only)",
        "cpuShares": "highest CPU weight of one sandbox; with any other bound at most 1024 unless it says more",
        "priority": "highest `priority`; with any other bound at most 0 unless it says more",
        "tools": "MCP tools that it may call, such as `docker.file.*`, or `SERVER.TOOL` of an MCPServer; with them the"
        " grant holds for MCP calls alone",
    }
    options = {
        "role": ("--role",),
        "namespaces": ("--namespace",),
        "levels": ("--level",),
        "images": ("--image",),
        "requireDigest": ("--require-digest",),
        "limits": ("--max-cpu", "--max-memory", "--max-pids"),
        "cpuShares": ("--max-cpu-shares",),
        "priority": ("--max-priority",),
        "tools": ("--tool",),
    }
    names = {info.alias or name for name, info in PeerGrant.model_fields.items()}
    assert names == meaning.keys(), f"describe these fields of a grant: {names ^ meaning.keys()}"
    gone = {each for found in options.values() for each in found} - _token_options()
    assert not gone, f"`paddock token create` has no options {gone}"
    rows = (
        (f"`{name}`", ", ".join(f"`{each}`" for each in options.get(name, ())), text) for name, text in meaning.items()
    )
    return table(("field", "option of `paddock token create`", "meaning"), rows)


def _token_options() -> set[str]:
    return {option for each in token_.commands["create"].params for option in each.opts}


def profile_grants() -> str:
    """Return the fields of the setting `profile_grants`."""
    return ", ".join(f"`{name}`" for name in ProfileGrants.model_fields)


def metrics() -> str:
    """Return every metric of the catalogue, a table for each section."""
    named = {each.name for families in _SECTIONS.values() for each in families}
    rest = tuple(each for name, each in CATALOGUE.items() if name not in named)
    parts = []
    for section, families in {**_SECTIONS, **({"More": rest} if rest else {})}.items():
        rows = (
            (
                f"`{each.name}`",
                each.type + (", detail" if each.detail else ""),
                ", ".join(f"`{label}`" for label in each.labels),
                cell(each.help),
            )
            for each in families
        )
        parts.append(f"### {section}\n\n{table(('metric', 'type', 'labels', 'meaning'), rows)}")
    return "\n\n".join(parts)


def rules(file: str) -> list[dict[str, Any]]:
    """Return the rules of a file of deploy/prometheus."""
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> str:
    """Return every alert, with a link to its runbook."""
    found = (each for each in rules("alerts.rules.yml") if "alert" in each)
    rows = (
        (f"[{each['alert']}](#{each['alert'].lower()})", each["labels"]["severity"], _after(each["for"]),
         cell(_plain(each["annotations"]["summary"])))
        for each in found
    )  # fmt: skip
    return table(("alert", "severity", "after", "says"), rows)


def recordings() -> str:
    """Return every recording rule."""
    return table(("series", "expression"), ((f"`{each['record']}`", f"`{cell(each['expr'])}`")
                                            for each in rules("recording.rules.yml")))  # fmt: skip


def _after(text: str) -> str:
    return "at once" if text == "0m" else text


def _user(level: Level) -> str:
    words = {SHARED_USER: "one of its own", "": "one of its own, or the image's"}
    return words.get(level.default_user, level.default_user)


def _plain(text: str) -> str:
    """Return the summary of an alert with the names of its labels for their values."""
    for name in ("instance", "namespace", "sandbox", "pool", "operation", "job_id", "reason", "scope", "resource"):
        text = text.replace("{{ $labels." + name + " }}", name.upper())
    return text.replace("{{ $value | humanizePercentage }}", "N %").replace("{{ $value }}", "N")


_ALSO_CALLED = {level: alias for alias, level in ALIASES.items()}
_LEVEL_ROWS = (
    ("also called", lambda each: f"`{_ALSO_CALLED[each.name]}`"),
    ("network", lambda each: _network(each)),
    ("user of a spec that names none", _user),
    ("lowest uid and gid", lambda each: str(each.lowest_uid)),
    ("root file system", lambda each: "read-only" if each.read_only_root else "writable"),
    ("folders in memory", lambda each: _folders(each)),
    ("capabilities", lambda each: ", ".join(each.capabilities) or "none"),
    ("no-new-privileges", lambda each: "yes" if each.no_new_privileges else "no"),
    ("seccomp profile", lambda each: f"`{each.seccomp.partition('@')[0]}`"),
    ("folders of the host", lambda each: each.host_folders),
    ("default CPU", lambda each: format_cpu(each.limits.cpu_millicores)),
    ("default memory", lambda each: format_bytes(each.limits.memory_bytes)),
    ("default PIDs", lambda each: str(each.limits.pids)),
    ("highest memory", lambda each: format_bytes(each.most.memory_bytes) if each.most.memory_bytes else "the host's"),
    ("peers of the namespace", lambda each: "may be asked for" if each.peers else "no"),
    ("each start is audited first", lambda each: "yes" if each.audits_starts else "no"),
)  # fmt: skip


def levels() -> str:
    """Return the built-in security levels, side by side."""
    titles = ("", *(f"`{name}`" for name in BUILT_IN))
    return table(titles, ((name, *(show(each) for each in BUILT_IN.values())) for name, show in _LEVEL_ROWS))


def _network(level: Level) -> str:
    if level.network == "none":
        return "none"
    if level.network == "public":
        return "the Internet; nothing local"
    if level.allowed_hosts is None:
        return "names in `network.allowedHosts`, by a proxy"
    return "the host's package sources, by a proxy"


def _folders(level: Level) -> str:
    return ", ".join(f"`{each.path}` {format_bytes(each.size_bytes)}" for each in level.tmpfs) or "none"


def mcp_tools() -> str:
    """Return every tool of the MCP server: its role, and the first sentence of its description."""
    rows = (
        (f"`{each.name}`", each.role, "" if each.read_only else "yes", cell(_first_sentence(each.description)))
        for each in TOOLS.values()
    )
    return table(("tool", "role", "changes", ""), rows)


def e2b_calls() -> str:
    """Return every call of E2B's protocol: what a program calls, and what differs."""
    rows = (
        (
            f"`{call.client}`" if call.client else "",
            f"`{call.method} {call.path}`",
            cell(f"refused: {call.difference}" if call.form == "refusal" else call.difference or "as E2B's"),
        )
        for call in CALLS
    )
    return table(("in a program", "request", "here"), rows)


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".")


def kinds() -> str:
    """Return every kind: names, scope, and who writes it."""
    rows = (
        (
            f"[{each.name}](#{each.name.lower()})",
            ", ".join(f"`{word}`" for word in (each.plural, *each.short_names)),
            "namespace" if each.namespaced else "host",
            "Paddock" if each.read_only else "you",
        )
        for each in sorted(discover(), key=lambda each: (bool(each.read_only), each.name))
    )
    return table(("kind", "names on the command line", "belongs to a", "written by"), rows)
