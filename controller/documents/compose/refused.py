"""Keys of Compose that no sandbox can have, each with what to write instead.

A value among the harmless ones says what holds here anyway, and is accepted.
"""

from controller.documents.compose.element import Element

_LEVEL = "a sandbox has what its security level gives; remove it, or choose a level (`x-paddock: {securityLevel: ...}`)"
_ENGINE = "remove it: a sandbox is confined by Paddock alone"
_HOST = "a sandbox shares no namespace with the host or with another one; remove it"
_CPU = "write `cpus` (0.5 is half a core) or `cpu_shares`"
_RESOLVER = "names are resolved by the sandbox's own proxy; remove it, and list hosts in `x-paddock: {network: ...}`"
_BUILD = "a Compose file builds nothing here; build it first (`paddock image build -t NAME FOLDER`), and write `image:`"
_ONE_FILE = "one file is read, and nothing beside it; write the service out"
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
    "ulimits": (({},), f"{_FIXED}; remove it, or write `pids_limit` for processes"),
    "oom_kill_disable": ((False,), "a sandbox over its memory limit is always killed; raise `mem_limit`"),
    "oom_score_adj": ((), f"{_FIXED}; remove it, or write `x-paddock: {{priority: N}}` for its order in the queue"),
    "storage_opt": ((), "write the disk limit in a spec (`resources: {limits: {disk: 1Gi}}`)"),
    "blkio_config": ((), "block I/O has no weights here; remove it"),
    "cpu_count": ((), _CPU),
    "cpu_percent": ((), _CPU),
    "cpu_period": ((), _CPU),
    "cpu_quota": ((), _CPU),
    "cpu_rt_period": ((), _CPU),
    "cpu_rt_runtime": ((), _CPU),
    "cpuset": ((), _CPU),
    "mem_reservation": ((), "a sandbox's limit is what is reserved for it; write `mem_limit` alone"),
    "mem_swappiness": ((), "a sandbox has no swap; remove it"),
    "build": ((), _BUILD),
    "extends": ((), _ONE_FILE),
    "env_file": (([],), "files beside this one are not read; list the variables in `environment:`"),
    "label_file": (([],), "files beside this one are not read; list the labels in `labels:`"),
    "profiles": (([],), "every service of the file is started; put optional ones into a file of their own"),
    "configs": (([],), "files beside this one are not read; bake them into the image, or copy them (`paddock cp`)"),
    "hostname": ((), "a sandbox's host name is its own name, PROJECT-SERVICE; remove it, or write `container_name`"),
    "domainname": ((), "a sandbox's host name is its own name, PROJECT-SERVICE; remove it, or write `container_name`"),
    "external_links": (([],), "another sandbox of the namespace is NAME.peers.internal; remove it"),
    "dns": (([],), _RESOLVER),
    "dns_opt": (([],), _RESOLVER),
    "dns_search": (([],), _RESOLVER),
    "extra_hosts": (([], {}), _RESOLVER),
    "mac_address": ((), "addresses are chosen by the engine; remove it"),
    "logging": ((), "every sandbox's log is kept within bounds (`paddock logs`); remove it"),
    "volumes_from": (([],), "name the volume under `volumes:` of both services"),
    "tty": ((False,), "a sandbox has no terminal of its own; write a command that stays, and use `paddock shell`"),
    "stdin_open": ((False,), "a sandbox's input is closed; write a command that stays, and use `paddock shell`"),
    "attach": ((True, False), ""),
    "init": ((True,), "every sandbox has an init process; remove it"),
    "platform": ((), "images are run on this host's own platform; remove it"),
    "pull_policy": (
        ("missing", "if_not_present"),
        "an image is pulled if it is not here; remove it, or use `paddock image pull`",
    ),
    "scale": ((1,), "a service is one sandbox; write a SandboxPool for more"),
    "stop_signal": (
        ("SIGTERM", "TERM"),
        "is the image's STOPSIGNAL, else SIGTERM (and SIGKILL after `stop_grace_period`); write it into the image",
    ),
    "post_start": (([],), "put it into the service's own command"),
    "pre_stop": (([],), "handle SIGTERM in the service's own command"),
    "develop": ((), "files are not synchronised; bind the folder (`volumes:`), or copy (`paddock cp`)"),
    "provider": ((), "a service is a container here; remove it"),
    "models": (([], {}), "models are not part of a sandbox; pass the address of one in `environment:`"),
    "use_api_socket": ((False,), "a sandbox never gets the engine's socket; remove it"),
    "annotations": (([], {}), "write `labels:`"),
}

TOP: Refused = {
    "include": (([],), _ONE_FILE),
    "configs": (({},), "files beside this one are not read; bake them into the image, or copy them (`paddock cp`)"),
    "models": (({},), "models are not part of a sandbox; pass the address of one in `environment:`"),
}


def check(element: Element, known_keys: tuple[str, ...], refused_keys: Refused) -> None:
    """Add a problem for each key that is refused or unknown."""
    messages = {name: message for name, (_, message) in refused_keys.items()}
    harmless = [name for name, (values, _) in refused_keys.items() if _is_harmless(element, name, values)]
    element.check_keys(
        *known_keys, *harmless, **{name: message for name, message in messages.items() if name not in harmless}
    )


def _is_harmless(element: Element, name: str, values: tuple[object, ...]) -> bool:
    if name not in (element.node.fields or {}):
        return False
    child = element.child(name)
    plain_value = child.node.plain() if child is not None else None
    return child is None or any(
        plain_value == harmless_value and isinstance(plain_value, type(harmless_value)) for harmless_value in values
    )
