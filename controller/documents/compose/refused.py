"""Keys of Compose that no sandbox can have, each with what to write instead.

A value among the harmless ones says what holds here anyway, and is accepted.
"""

from collections.abc import Collection

from controller.documents.compose.element import Element

_LEVEL = "a sandbox has what its security level gives; remove it, or choose a level (`x-paddock: {securityLevel: ...}`)"
_ENGINE = "remove it: a sandbox is confined by Paddock alone"
_HOST = "a sandbox shares no namespace with the host or with another one; remove it"
_CPU = "write `cpus` (0.5 is half a core) or `cpu_shares`"
_RESOLVER = "names are resolved by the sandbox's own proxy; remove it, and list hosts in `x-paddock: {network: ...}`"
_ONE_FILE = "other files are merged by `-f`, or read by `extends:`; write `-f` for each of them"
_FIXED = "is the same for every sandbox"

Refused = dict[str, tuple[tuple[object, ...], str]]  # key -> harmless values, message

SERVICE: Refused = {
    "privileged": ((False,), "a sandbox is never privileged; remove it"),
    "network_mode": (("none", "bridge"), f"{_HOST}, or write `network_mode: none`"),
    "pid": ((), _HOST),
    "ipc": (("private",), _HOST),
    "uts": ((), _HOST),
    "cgroup": (("private",), _HOST),
    "userns_mode": ((), f'{_HOST}; `user: "20000:20000"` is a user that the host does not have'),
    "devices": (([],), "a sandbox has no devices of the host; remove it"),
    "device_cgroup_rules": (([],), "a sandbox has no devices of the host; remove it"),
    "group_add": (([],), 'a sandbox has one group; write it in `user: "UID:GID"`'),
    "cgroup_parent": ((), _ENGINE),
    "credential_spec": ((), "Windows credentials mean nothing on Linux; remove it"),
    "isolation": (("default",), "the isolation technology is the security level's; remove it"),
    "sysctls": (({}, []), _LEVEL),
    "oom_kill_disable": ((False,), "a sandbox over its memory limit is always killed; raise `mem_limit`"),
    "storage_opt": ((), "write the disk limit in a spec (`resources: {limits: {disk: 1Gi}}`)"),
    "blkio_config": ((), "block I/O has no weights here; remove it"),
    "cpu_count": ((), _CPU),
    "cpu_percent": ((), _CPU),
    "cpu_period": ((), _CPU),
    "cpu_quota": ((), _CPU),
    "cpu_rt_period": ((), _CPU),
    "cpu_rt_runtime": ((), _CPU),
    "cpuset": ((), _CPU),
    "mem_swappiness": ((), "a sandbox has no swap; remove it"),
    "external_links": (([],), "another sandbox of the namespace is NAME.peers.internal; remove it"),
    "dns": (([],), _RESOLVER),
    "dns_opt": (([],), _RESOLVER),
    "dns_search": (([],), _RESOLVER),
    "extra_hosts": (([], {}), _RESOLVER),
    "mac_address": ((), "addresses are chosen by the engine; remove it"),
    "volumes_from": (([],), "name the volume under `volumes:` of both services"),
    "scale": ((1,), "a service is one sandbox; write a SandboxPool for more"),
    "post_start": (([],), "put it into the service's own command"),
    "pre_stop": (([],), "handle SIGTERM in the service's own command"),
    "provider": ((), "a service is a container here; remove it"),
    "models": (([], {}), "models are not part of a sandbox; pass the address of one in `environment:`"),
    "use_api_socket": ((False,), "a sandbox never gets the engine's socket; remove it"),
}

# Keys that change nothing here, each with what holds instead. "": as everywhere.
NOTED: dict[str, str] = {
    "annotations": "",
    "attach": "",
    "develop": "files are not synchronised: bind the folder (`volumes:`), or copy (`paddock cp`)",
    "domainname": "a sandbox has no domain; others reach it by its service's name",
    "hostname": "its host name is its sandbox's name",
    "init": "",
    "logging": "every sandbox's log is kept within bounds: `paddock logs`",
    "mem_reservation": "its limit is what it is sure to have",
    "oom_score_adj": "it is the same for every sandbox",
    "platform": "images are run on the host's own platform",
    "pull_policy": "an image is pulled if it is not there; `paddock image pull` fetches a newer one",
    "stop_signal": "it gets its image's own stop signal, and SIGKILL after `stop_grace_period`",
    "ulimits": "they are the same for every sandbox: 16384 open files; `pids_limit` bounds processes",
}

TOP: Refused = {
    "include": (([],), _ONE_FILE),
    "models": (({},), "models are not part of a sandbox; pass the address of one in `environment:`"),
}


def check(element: Element, known_keys: tuple[str, ...], refused_keys: Refused, noted: Collection[str] = ()) -> None:
    """Add a problem for each key that is refused or unknown, and a note for each that changes nothing."""
    for name in noted:
        if (child := element.child(name)) is not None and NOTED[name]:
            child.note(f"changes nothing: {NOTED[name]}")
    messages = {name: message for name, (_, message) in refused_keys.items()}
    harmless = [name for name, (values, _) in refused_keys.items() if _is_harmless(element, name, values)]
    element.check_keys(
        *known_keys, *harmless, *noted, **{name: message for name, message in messages.items() if name not in harmless}
    )


def _is_harmless(element: Element, name: str, values: tuple[object, ...]) -> bool:
    if name not in (element.node.fields or {}):
        return False
    child = element.child(name)
    plain_value = child.node.plain() if child is not None else None
    return child is None or any(
        plain_value == harmless_value and isinstance(plain_value, type(harmless_value)) for harmless_value in values
    )
