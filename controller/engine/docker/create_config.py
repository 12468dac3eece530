"""Body of the engine's create call, rendered from a ContainerConfig. Pure.

Settings of every container (init, granted capabilities only, bounded logs ...) are only here. Settings that differ by
level come in the config.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.kinds.observed.observed import OutOfBandSettings
from controller.kinds.runtime.container import SHARED_FOLDERS, ContainerConfig, Limits, Tmpfs
from controller.kinds.runtime.models import HOST, with_models

NANO_PER_MILLI = 1_000_000
# An empty file takes no page of a tmpfs, but memory of the kernel's; a file with anything in it takes a page.
_BYTES_A_FILE, _FEWEST_FILES = 2048, 1024

# As engines write them.
_LOCAL_NAMES = (
    ("127.0.0.1", "localhost"),
    ("::1", "localhost ip6-localhost ip6-loopback"),
    ("fe00::0", "ip6-localnet"),
    ("ff00::0", "ip6-mcastprefix"),
    ("ff02::1", "ip6-allnodes"),
    ("ff02::2", "ip6-allrouters"),
)

# Kernel files that no sandbox may read. Our list replaces the engine's, so it holds all that engines mask by default
# (20.10 to 29). The engine skips paths that this kernel lacks.
MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/notes",
)


def network_files(config: ContainerConfig) -> Mapping[str, str]:
    """Return the files of /etc about the network, by name, of a container without one; none for one that has one.

    With them bound the engine need not set up a network namespace's networks, which halves a start; newer engines
    then write none of them. How a container was made is no part of its hash.
    """
    if config.network_mode != "none" or config.joins_peers:
        return {}
    names = [*_LOCAL_NAMES, ("127.0.0.1", config.hostname), *([("127.0.0.1", HOST)] if config.models else [])]
    options = [f"options {' '.join(config.dns_options)}\n"] if config.dns_options else []
    return {
        "hosts": "".join(f"{address}\t{name}\n" for address, name in names),
        "hostname": f"{config.hostname}\n",
        "resolv.conf": "".join([*(f"nameserver {server}\n" for server in config.dns), *options]),
    }


def create_body(
    config: ContainerConfig,
    labels: Mapping[str, str],
    image: str,
    seccomp: str = "",
    counted: int = 0,
    *,
    swappiness: bool = False,
    networked: bool = True,
) -> dict[str, Any]:
    """JSON for POST /containers/create. `image` is a reference or an id, `seccomp` the text of the config's profile.

    `counted` is how many bytes of the image this engine counts as the container's. `swappiness`: this host can hold a
    container out of swap by its swappiness (cgroup v1). Without `networked` its `network_files` are bound, and the
    engine leaves its network namespace alone.
    """
    body: dict[str, Any] = {
        "Image": image,
        "Hostname": config.hostname,
        "User": config.user,
        "WorkingDir": config.working_dir,
        "Env": [f"{name}={value}" for name, value in _environment(config)],
        "Labels": dict(labels),
        # An image's own health check would run commands that no spec requests.
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(config, seccomp, counted) | ({"MemorySwappiness": 0} if swappiness else {}),
        **({} if networked else {"NetworkDisabled": True}),
    }
    if config.command is not None:
        # Both, so that the image's entry point never precedes the command.
        body["Entrypoint"], body["Cmd"] = list(config.command), []
    elif config.args:
        body["Cmd"] = list(config.args)
    return body


def _environment(config: ContainerConfig) -> list[tuple[str, str]]:
    """Return the variables, with those of the model gateway. They and names in no_proxy are not part of the hash."""
    direct_names = [*(name for name, _ in config.peer_names), *([HOST] if config.models else [])]
    if not direct_names:
        return list(config.env)
    variables = with_models(dict(config.env)) if config.models else dict(config.env)
    for name in ("NO_PROXY", "no_proxy"):
        if name in variables:
            variables[name] = ",".join((variables[name], *direct_names))
    return sorted(variables.items())


def _host_config(config: ContainerConfig, seccomp: str, counted: int) -> dict[str, Any]:
    """Return the HostConfig of the create call. `counted`: bytes of the image that count as the container's disk."""
    return {
        "Init": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": list(config.capabilities),
        "SecurityOpt": [*config.security_options, *([f"seccomp={seccomp}"] if seccomp else [])],
        "ReadonlyRootfs": config.read_only_root,
        "Tmpfs": {}
        if config.holds_memory
        else {folder.path: tmpfs_options(folder, config.user) for folder in config.tmpfs},
        "ShmSize": config.shm_bytes,
        "NetworkMode": config.network_mode,
        "Dns": list(config.dns),
        "DnsOptions": list(config.dns_options),
        "PublishAllPorts": False,
        "MaskedPaths": list(MASKED_PATHS),
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Ulimits": [_ulimit("nofile", config.nofile), _ulimit("core", 0)],
        "OomScoreAdj": config.oom_score_adjust,
        "LogConfig": {
            "Type": "json-file",
            "Config": {"max-size": str(config.log_max_bytes), "max-file": str(config.log_files)},
        },
        # Paddock restarts containers with its own back-off; the engine must not.
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        **limits_body(config.limits),
        **_runtime(config.runtime or config.host_runtime),
        **({"StorageOpt": {"size": str(config.storage_bytes + counted)}} if config.storage_bytes else {}),
        **({"DeviceRequests": [_gpus(config.gpus, config.gpu_ids)]} if config.gpus else {}),
        **({"Sysctls": dict(config.sysctls)} if config.sysctls else {}),
        **({"ExtraHosts": [f"{HOST}:127.0.0.1"]} if config.models else {}),
    }


def _runtime(name: str) -> dict[str, Any]:
    """Return the runtime. crun would put a cgroup of its own below systemd's, out of reach of the engine's updates."""
    if name != "crun":
        return {"Runtime": name} if name else {}
    return {"Runtime": name, "Annotations": {"run.oci.systemd.subgroup": ""}}


def _gpus(count: int, ids: Sequence[str]) -> dict[str, Any]:
    """Return a device request as of `docker run --gpus`: a count, or particular ids. Without a driver no start."""
    chosen = {"Count": 0, "DeviceIDs": list(ids)} if ids else {"Count": count, "DeviceIDs": None}
    return {"Driver": "", **chosen, "Capabilities": [["gpu"]], "Options": {}}


def limits_body(limits: Limits) -> dict[str, int]:
    """Return the limits for create and update. Swap is never allowed: memory and memory+swap are equal.

    NanoCpus and CpuQuota exclude each other for a container's life, so only NanoCpus is sent. Shares of 0 are not sent,
    which leaves them as they are.
    """
    body = {
        "NanoCpus": limits.cpu_millicores * NANO_PER_MILLI,
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "PidsLimit": limits.pids,
    }
    if limits.cpu_shares:
        body["CpuShares"] = limits.cpu_shares
    return body


def update_body(limits: Limits) -> dict[str, Any]:
    """Return the update of an existing container: its limits, and no restart policy of the engine's."""
    return {**limits_body(limits), "RestartPolicy": {"Name": "no"}}


def drift_of_body(host_config: Mapping[str, Any], *, swap_limit: bool) -> OutOfBandSettings:
    """Return the out-of-band changes in a HostConfig. Without `swap_limit` the engine's swap figures mean nothing."""
    memory, both = int(host_config.get("Memory") or 0), int(host_config.get("MemorySwap") or 0)
    # Unset means as much swap as memory.
    swap = -1 if both < 0 else both - memory if both else memory
    return OutOfBandSettings(
        swap_bytes=swap if swap_limit else 0,
        restart_policy=str((host_config.get("RestartPolicy") or {}).get("Name") or "no"),
        cpus=str(host_config.get("CpusetCpus") or ""),
        memory_nodes=str(host_config.get("CpusetMems") or ""),
    )


def limits_of_body(host_config: Mapping[str, Any]) -> Limits:
    """Return the limits in a HostConfig of an inspect; 0 where there is none (null, 0 or -1)."""
    pids = int(host_config.get("PidsLimit") or 0)
    nano = int(host_config.get("NanoCpus") or 0)
    period, quota = int(host_config.get("CpuPeriod") or 0), int(host_config.get("CpuQuota") or 0)
    by_quota = quota * 1000 // (period or 100_000) if quota > 0 else 0
    return Limits(
        cpu_millicores=nano // NANO_PER_MILLI or by_quota,
        memory_bytes=int(host_config.get("Memory") or 0),
        pids=max(pids, 0),
        cpu_shares=int(host_config.get("CpuShares") or 0),
    )


def tmpfs_files(size_bytes: int) -> int:
    """Return the inode limit of a tmpfs of that size: more than its pages, and bounded, as empty files use memory."""
    return max(_FEWEST_FILES, size_bytes // _BYTES_A_FILE)


def tmpfs_options(mount: Tmpfs, user: str) -> str:
    """Return the options of a tmpfs, always sized. The image's folder overrides `mode=` alone, hence the owner."""
    options = ["rw", "noexec" if mount.noexec else "exec", "nosuid", "nodev", f"size={mount.size_bytes}"]
    options.append(f"nr_inodes={tmpfs_files(mount.size_bytes)}")
    uid, _, gid = user.partition(":")
    if uid.isdigit():
        options += [f"uid={uid}", f"gid={gid if gid.isdigit() else 0}"]
    shared = mount.path in SHARED_FOLDERS or not uid.isdigit()
    return ",".join([*options, "mode=1777" if shared else "mode=0755"])


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}


def storage_of_body(host_config: Mapping[str, Any]) -> int:
    """Return the limit of the writable layer in bytes; 0 for none, and for a size not in bytes (not ours)."""
    size = str((host_config.get("StorageOpt") or {}).get("size") or "")
    return int(size) if size.isdigit() else 0
