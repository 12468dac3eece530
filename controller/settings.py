"""Settings of the daemon: a TOML file, then PADDOCK_* environment variables, which take precedence.

Every setting has a default that works; `paddock serve --config FILE` replaces the default file.
"""

import ipaddress
import os
import re
import tomllib
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controller.kinds.access.access import PeerGrant, Role
from controller.kinds.base import Name
from controller.kinds.common.address import is_loopback, parse_address
from controller.kinds.common.daemon_role import ROLES, DaemonRole
from controller.kinds.host import NAME
from controller.kinds.runtime.mount import HostRoot
from controller.kinds.runtime.package_hosts import Registries
from controller.kinds.runtime.runtime_choice import DefaultRuntime
from controller.kinds.runtime.user_ids import IdRange, parse_range
from controller.kinds.sandbox import HostName
from controller.kinds.securityprofile import ProfileGrants
from controller.policy.container.mounts import system_folder
from controller.policy.levels.levels import Scheduler
from controller.policy.provider import hosts_refused
from controller.ports.fleet import Reached
from controller.service.exec.exec_limits import PAUSE_SECONDS, ExecRules
from controller.service.images.images import ImageWorkRules
from controller.service.mcp.installs import InstallRules
from controller.service.sandbox.files import TransferLimits
from controller.service.sandbox.port_forward import PortLimits

DEFAULT_FILE = Path("/etc/paddock/paddock.toml")
_REGISTRY = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:(80|443))?(/[^\s@]*)?")


class SettingsError(Exception):
    """Invalid settings; the message has every reason."""


def _state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/paddock")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "paddock"


def _socket() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.geteuid() != 0:
        return Path(runtime) / "paddock.sock"
    return Path("/run/paddock/paddock.sock")


class Settings(BaseSettings):
    """Settings of the daemon. Unknown names in the file are errors, so that no typo is silently ignored."""

    model_config = SettingsConfigDict(env_prefix="PADDOCK_", extra="forbid", frozen=True)

    state_dir: Path = Field(
        default_factory=_state_dir,
        description=(
            "folder of the embedded database, the leader lock and the daemon's own files; default: "
            "/var/lib/paddock as root"
        ),
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL of the store; default: empty, SQLite in state_dir"
    )
    socket: Path = Field(
        default_factory=_socket,
        description="path of the API's Unix socket, mode 0660; default: /run/paddock/paddock.sock as root",
    )
    socket_group: str = Field(
        default="", description="group whose members may use the socket; default: empty, the daemon's own group"
    )
    socket_group_role: Role | Literal["none"] = Field(
        default="admin",
        description="role of that group's members in all namespaces, besides their grants; none: their grants alone",
    )
    access: tuple[PeerGrant, ...] = Field(
        default=(), description="grants to users and groups of this host who connect over the socket; default: none"
    )
    api_host: str = Field(
        default="",
        description="address of the API's TCP listener, which authenticates by token; default: empty, no TCP listener",
    )
    api_port: int = Field(default=9465, ge=0, le=65535, description="port of the TCP listener; 0 picks a free one")
    tls_cert_file: Path | None = Field(
        default=None, description="PEM certificate chain of the TCP listener; default: none"
    )
    tls_key_file: Path | None = Field(
        default=None, description="PEM private key of the TCP listener, readable by the daemon alone; default: none"
    )
    requests_per_second: float = Field(
        default=200.0,
        ge=0.0,
        le=1e6,
        description="requests a second of one caller of the API, with bursts of five seconds' worth; 0: no limit",
    )
    requests_in_flight: int = Field(
        default=400,
        ge=8,
        le=65536,
        description="requests in flight of all callers together, besides streams and work in sandboxes",
    )
    caller_share: float = Field(
        default=0.5,
        gt=0.0,
        le=1.0,
        description=(
            "share of each limit for all callers together (requests in flight, connections, watches, commands, "
            "logs, file operations, port forwards) that one caller may use"
        ),
    )
    host_name: Name = Field(
        default=NAME,
        description="name of this host among those of one store, and of its Host object; default: host, the only one",
    )
    scheduler: Scheduler = Field(
        default="single",
        description=(
            "choice of the host of a sandbox that names none: single, the only one there is; manual, a person "
            "(`spec.host`); swarm, the Docker Swarm that the hosts are managers of; more than one host needs manual or "
            "swarm, and PostgreSQL"
        ),
    )
    roles: tuple[DaemonRole, ...] = Field(
        default=ROLES,
        min_length=1,
        description=(
            "roles of this daemon among many: api, it answers people and programs; host, it keeps the sandboxes of "
            "this machine; fleet, it may decide for all hosts (with swarm: on managers, for only these can place); "
            "default: all of them"
        ),
    )
    fleet_address: str = Field(
        default="",
        description=(
            "HOST:PORT at which the daemons of other hosts reach this one, over mutual TLS; default: empty, none do"
        ),
    )
    fleet_cert_file: Path | None = Field(
        default=None,
        description="PEM certificate of this host for other daemons, with host_name as a DNS name; default: none",
    )
    fleet_key_file: Path | None = Field(
        default=None, description="PEM private key of fleet_cert_file, readable by the daemon alone; default: none"
    )
    fleet_ca_file: Path | None = Field(
        default=None, description="PEM certificate of the authority that signs the hosts' certificates; default: none"
    )
    e2b_address: str = Field(
        default="127.0.0.1:9470",
        description=(
            "HOST:PORT of the listener for clients of E2B, which authenticate by token; beyond this machine with "
            "e2b_tls_cert_file; empty: none"
        ),
    )
    e2b_domain: str = Field(
        default="",
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?(:[0-9]{1,5})?)?$",
        description=(
            "domain of the host names PORT-ID.DOMAIN of sandboxes, with its port if that is not 443; it needs a "
            "wildcard record; default: empty, localhost with the listener's port"
        ),
    )
    e2b_tls_cert_file: Path | None = Field(
        default=None, description="PEM certificate chain of that listener, for *.e2b_domain, too; default: none"
    )
    e2b_tls_key_file: Path | None = Field(
        default=None, description="PEM private key of e2b_tls_cert_file, readable by the daemon alone; default: none"
    )
    ssh_address: str = Field(
        default="",
        description=(
            "HOST:PORT of an SSH port for clients without a ProxyCommand: user NAME--NAMESPACE, a key of `paddock ssh "
            "key add` or a token as the password; default: empty, no port"
        ),
    )
    preview_address: str = Field(
        default="127.0.0.1:9480",
        description=(
            "HOST:PORT of the listener for previews of sandboxes' ports, opened with the first link; beyond this "
            "machine with preview_cert_file; empty: no previews"
        ),
    )
    preview_domain: str = Field(
        default="",
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?(:[0-9]{1,5})?)?$",
        description=(
            "domain of the host names PORT--NAME--NAMESPACE--HASH.DOMAIN of previews, with its port if that is not "
            "443; not the API's own domain; it needs a wildcard record, and https here or at a proxy in front; "
            "default: empty, localhost with the listener's port"
        ),
    )
    preview_cert_file: Path | None = Field(
        default=None, description="PEM certificate chain of that listener, for *.preview_domain; default: none"
    )
    preview_key_file: Path | None = Field(
        default=None, description="PEM private key of preview_cert_file, readable by the daemon alone; default: none"
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description=(
            "addresses or networks (10.0.0.0/24) of the proxies in front of previews, whose X-Forwarded-For tells a "
            "client's address, and whose X-Forwarded-Proto: http leads to https; default: none"
        ),
    )
    e2b_templates: dict[str, str] = Field(
        default={"base": "paddock/python:1", "code-interpreter-v1": "paddock/data:1|paddock/python:1"},
        max_length=64,
        description=(
            "images by the names of E2B's templates, of several between `|` the first that is on this host; a "
            "SandboxTemplate or SandboxPool of the name comes first; default: base is paddock/python:1, and "
            "code-interpreter-v1 paddock/data:1 where that was built"
        ),
    )
    docker_host: str = Field(default="unix:///var/run/docker.sock", description="URL of the Docker Engine")
    metrics_host: str = Field(default="127.0.0.1", description="address of the metrics listener")
    metrics_port: int = Field(
        default=9464, ge=0, le=65535, description="port of the metrics listener; 0 picks a free one"
    )
    metrics_token_file: Path | None = Field(
        default=None,
        description=(
            "file with the bearer token that a scrape must present, as its only line; default: none, no token is "
            "required"
        ),
    )
    metrics_tls_cert_file: Path | None = Field(
        default=None, description="PEM certificate of the metrics listener; with the key: https instead of http"
    )
    metrics_tls_key_file: Path | None = Field(
        default=None, description="PEM private key of the metrics listener, without a passphrase"
    )
    metrics_detail: bool = Field(default=False, description="export the detailed metric families, too")
    metrics_labels: tuple[str, ...] = Field(
        default=(),
        max_length=16,
        description="names of sandbox labels that are exported as metric labels; at most 16; default: none",
    )
    workers: int = Field(
        default=4, ge=1, le=64, description="concurrent engine calls; four saturate an engine on 2 cores"
    )
    resync_seconds: float = Field(
        default=30.0, ge=1.0, le=3600.0, description="seconds between full observations of all containers"
    )
    standby: bool = Field(
        default=True,
        description="wait as a standby while another daemon holds the leader lease; false: exit with an error",
    )
    orphan_grace_seconds: float = Field(
        default=60.0,
        ge=1.0,
        le=86400.0,
        description="seconds that a container without an object is kept before it is removed",
    )
    orphan_share: float = Field(
        default=0.2,
        gt=0.0,
        le=1.0,
        description="largest share of our containers that one orphan sweep removes (but always one)",
    )
    allowed_images: tuple[str, ...] = Field(
        default=(),
        description="patterns of the images that may be used (such as `paddock/*`); default: none, any image",
    )
    images_by_digest: bool = Field(default=False, description="allow an image only if the spec names its digest")
    local_registries: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description=(
            "registries at private addresses or on this host, by address or by name, that images may be pulled "
            "from, as images name them (such as `127.0.0.1:5000` or `registry.lan:5000`); at most 64; default: none"
        ),
    )
    profile_grants: ProfileGrants = Field(
        default=ProfileGrants(),
        description="permissions beyond the built-in levels that security profiles may give; default: none",
    )
    gpu_devices: tuple[str, ...] = Field(
        default=(),
        max_length=1024,
        description=(
            "GPUs for sandboxes, by index or UUID as the driver names them, each used by one sandbox; default: "
            "none, the engine chooses and two sandboxes may share one"
        ),
    )
    runtimes: tuple[str, ...] = Field(
        default=(),
        max_length=16,
        description="runtimes of the engine that templates may request, such as runsc; at most 16; default: none",
    )
    default_runtime: DefaultRuntime = Field(
        default="auto",
        description=(
            "runtime of new sandboxes whose spec names none: runc, crun, or auto: crun where the engine has it and it "
            "passes a trial, else the engine's own"
        ),
    )
    apparmor_profiles: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="AppArmor profiles that templates may request besides docker-default; at most 64; default: none",
    )
    selinux_types: tuple[str, ...] = Field(
        default=(), max_length=64, description="SELinux types that templates may request; at most 64; default: none"
    )
    prune_images: Literal["superseded", "unused", "none"] = Field(
        default="superseded",
        description=(
            "images built by Paddock's recipes that are removed: superseded by a newer build of the same name, "
            "unused by all sandboxes and templates, or none; other images are never removed"
        ),
    )
    image_grace_seconds: float = Field(
        default=86400.0, ge=60.0, le=1e8, description="seconds that such an image is kept after its last use"
    )
    build_images: Literal["auto", "off"] = Field(
        default="auto",
        description=(
            "builds of Paddock's own images (`paddock/python:1` and the others of images/build.sh) that a spec names "
            "and that are not on this host: auto, the daemon builds them in the background from Debian's, Python's "
            "and npm's packages, on the host's network; or off"
        ),
    )
    image_build: Literal["off", "copy", "run"] = Field(
        default="off",
        description=(
            "image builds by admins: off, copy (Dockerfiles without RUN), or run (commands too, as root in a plain "
            "container of the engine, not in a sandbox: with the engine's default capabilities, seccomp profile and "
            "setuid programs; without a network, and with limits of memory, processor, processes and time)"
        ),
    )
    image_build_seconds: float = Field(
        default=600.0, ge=1.0, le=86400.0, description="seconds after which an image build is cancelled"
    )
    image_context_bytes: int = Field(
        default=64 << 20, ge=1024, le=1 << 30, description="largest size in bytes of a build's context, held in memory"
    )
    image_max_bytes: int = Field(
        default=2 << 30, ge=1 << 20, description="largest size in bytes of a built image; a larger one is removed"
    )
    push_registries: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description=(
            "registries that admins may push images to, as image names have them (such as `registry.example:5000` or "
            "`docker.io`), with this host's own logins; at most 64; default: none"
        ),
    )
    exec_timeout_seconds: float = Field(
        default=300.0,
        ge=0.0,
        le=1e7,
        description="time-out in seconds of a command that sets none itself; 0: no time-out",
    )
    exec_max_seconds: float = Field(
        default=0.0, ge=0.0, le=1e7, description="longest time-out in seconds that any command may have; 0: no limit"
    )
    exec_per_sandbox: int = Field(default=32, ge=1, le=4096, description="concurrent commands in one sandbox")
    exec_output_bytes: int = Field(
        default=1 << 20,
        ge=256,
        le=64 << 20,
        description="bytes of stdout, and of stderr, that a collected result keeps",
    )
    network_range: IPv4Network = Field(
        default=IPv4Network("10.213.0.0/16"),
        description="private IPv4 range for the networks of sandboxes, at least a /21; nothing else may use it",
    )
    sandbox_ids: str = Field(
        default="2000000-2065535",
        description=(
            "uids of which each sandbox gets one of its own, as FIRST-LAST; no user of this host may have one (see "
            "/etc/passwd, /etc/group, /etc/subuid, /etc/subgid); empty: sandboxes share 20000, and with it the "
            "kernel's limits for a user"
        ),
    )
    canary_seconds: float = Field(
        default=300.0,
        ge=5.0,
        le=86400.0,
        description="seconds between tests of the network guard from inside a network, while sandboxes have networks",
    )
    host_roots: tuple[HostRoot, ...] = Field(
        default=(),
        max_length=64,
        description="host folders whose subfolders may be bound into sandboxes; at most 64; default: none",
    )
    host_ca: Literal["auto", "off"] = Field(
        default="auto",
        description=(
            "certificate authorities of this host's own (of its administrator's folder, or named by SSL_CERT_FILE, "
            "PIP_CERT and the like), for programs in new sandboxes with a network, and installs of MCP servers: auto, "
            "they trust them where there are any; or off"
        ),
    )
    upstream_proxy: str = Field(
        default="",
        description=(
            "proxy (http://HOST:PORT, without a password) by which egress proxies of sandboxes and installs reach the "
            "Internet, on a host that has no other way to it; it decides on addresses of names that this host can't "
            "resolve; default: none"
        ),
    )
    secrets_dir: Path = Field(
        default=Path("/etc/paddock/secrets"),
        description="folder of secrets, as files NAMESPACE/NAME that only root may read",
    )
    provider_hosts: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description=(
            "endpoints of model providers that need not be public nor use https, as host:port (such as "
            "`127.0.0.1:11434`); at most 64; default: none"
        ),
    )
    models_port: int = Field(
        default=8090,
        ge=0,
        le=65535,
        description=(
            "port on 127.0.0.1 of this host at which callers with a token use the models of a namespace, while there "
            "are providers or model servers; 0: none"
        ),
    )
    contexts_per_sandbox: int = Field(
        default=8, ge=1, le=256, description="code contexts that one sandbox may have at the same time"
    )
    objects_per_namespace: int = Field(
        default=1500,
        ge=0,
        le=1 << 40,
        description="stored objects of all kinds in a namespace whose Quota sets no `hard.objects`; 0: no limit",
    )
    annotations_per_namespace_bytes: int = Field(
        default=64 << 20,
        ge=0,
        le=1 << 60,
        description="total size in bytes of the annotations in a namespace whose Quota sets no `hard.annotations`; "
        "0: no limit",
    )
    volumes_per_namespace_bytes: int = Field(
        default=10 << 30, ge=0, description="total size in bytes of one namespace's volumes; 0: no volumes"
    )
    suspend_files_bytes: int = Field(
        default=1 << 30,
        ge=0,
        description="size in bytes of one sandbox's files in memory that a suspension saves; one with more runs on",
    )
    workspace_volume_bytes: int = Field(
        default=0,
        ge=0,
        le=1 << 50,
        description=(
            "size in bytes of the volume that new sandboxes of level development, build and production on Paddock's "
            "own images have as /workspace, unless their spec mounts something there; it outlives their container, "
            "goes with them, and is allocated whole; 0: none, /workspace is part of the root file system"
        ),
    )
    artifacts_per_namespace_bytes: int = Field(
        default=1 << 30,
        ge=0,
        description="total size in bytes of the artifacts (tar archives) of one namespace's workflow runs; "
        "0: none are kept",
    )
    mounts_dir: Path = Field(
        default=Path("/run/paddock/mounts"),
        description="folder where mounts are prepared before they are bound into sandboxes",
    )
    package_sources: tuple[Literal["pip", "npm", "apt"], ...] = Field(
        default=("pip", "npm", "apt"),
        description=(
            "package managers whose hosts, as configured on this host or by default, sandboxes of level build may reach"
        ),
    )
    package_hosts: tuple[HostName, ...] = Field(
        default=(),
        max_length=96,
        description=(
            "further host names that those sandboxes may reach, with an optional leading `*.`; at most 96; "
            "default: none"
        ),
    )
    npm_registry: str = Field(
        default="",
        description="npm registry that MCP servers are installed from; default: that of this host's npm, else its own",
    )
    pypi_index: str = Field(
        default="",
        description=(
            "package index (PEP 503) that MCP servers are installed from; default: that of this host's pip, else "
            "its own"
        ),
    )
    package_install_seconds: float = Field(
        default=300.0, ge=1.0, le=86400.0, description="seconds after which an install of packages is ended"
    )
    package_install_bytes: int = Field(
        default=1 << 30,
        ge=16 << 20,
        le=1 << 40,
        description="disk in bytes of the sandbox that fetches an MCP server's packages, allocated while it does",
    )
    local_network: bool = Field(
        default=False, description="allow sandboxes of level production to request the local network (private ranges)"
    )
    peers: bool = Field(
        default=True,
        description="allow sandboxes of levels development and build to request their namespace's shared network",
    )
    attestation: Literal["enforce", "report"] = Field(
        default="enforce",
        description="action on a sandbox that fails its attestation: enforce stops it, report sets a condition",
    )
    guard_lost: Literal["stop", "pause", "report"] = Field(
        default="pause",
        description=(
            "action on sandboxes with Internet access (level production) while the network guard is lost: pause "
            "until it is back, stop, or report; sealed levels stay confined without the guard"
        ),
    )
    pressure_scale: float = Field(
        default=1.0,
        ge=0.0,
        le=1000.0,
        description="factor on the thresholds below which the host is short of memory, disk, inodes or PIDs; 0: never",
    )
    hibernation_bytes: int | None = Field(
        default=None,
        ge=0,
        description=(
            "bytes of swap that hibernated sandboxes may use together; 0: none is hibernated; default: none, all swap "
            "of the host"
        ),
    )
    hibernate_to_plain_disk: bool = Field(
        default=False,
        description=(
            "hibernate sandboxes although active swap of this host is on a disk without encryption, which then keeps "
            "what their memory holds, such as keys"
        ),
    )
    stall_seconds: float = Field(
        default=1.5,
        ge=0.5,
        le=3600.0,
        description="seconds after which a client that reads nothing of its stream is disconnected",
    )
    exec_pause_seconds: float = Field(
        default=PAUSE_SECONDS,
        ge=0.5,
        le=3600.0,
        description="seconds for which a client may pause in reading a command's output; the command waits meanwhile",
    )
    transfers: int = Field(default=32, ge=1, le=1024, description="concurrent file operations in all sandboxes")
    transfers_per_sandbox: int = Field(
        default=8, ge=1, le=1024, description="concurrent file operations in one sandbox"
    )
    transfer_max_bytes: int = Field(
        default=16 << 30, ge=1, description="largest size in bytes of one file or archive, in or out"
    )
    transfer_stall_seconds: float = Field(
        default=30.0, gt=0, le=3600.0, description="seconds after which an upload whose client sends nothing is aborted"
    )
    port_connections: int = Field(
        default=512, ge=1, le=65536, description="concurrent connections forwarded to ports of all sandboxes"
    )
    port_connections_per_sandbox: int = Field(
        default=128, ge=1, le=65536, description="concurrent connections forwarded to ports of one sandbox"
    )
    engine_timeout_seconds: float = Field(
        default=30.0, ge=1.0, le=600.0, description="time-out in seconds of one call to the engine"
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="format of the log: console, json, or auto (console on a terminal, else json)"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged"
    )

    @field_validator("upstream_proxy")
    @classmethod
    def _reachable_by_containers(cls, url: str) -> str:
        match = re.fullmatch(r"http://([A-Za-z0-9.-]{1,253}):([0-9]{1,5})/?", url)
        if url and (not match or not 0 < int(match[2]) < 65536):
            raise ValueError(
                "must be http://HOST:PORT; a proxy that asks for a password needs one beside it that knows the password"
            )
        if match and is_loopback(match[1]):
            raise ValueError(f"names this host itself ({match[1]}), which containers do not reach; name another one")
        return url.rstrip("/")

    @field_validator("host_roots")
    @classmethod
    def _no_system_folder(cls, value: tuple[HostRoot, ...]) -> tuple[HostRoot, ...]:
        for entry in value:
            if system_folder(entry.path):
                raise ValueError(
                    f"{entry.path} is or contains the system folder {system_folder(entry.path)}; choose another"
                )
        return value

    @field_validator("e2b_address", "preview_address", "ssh_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            parse_address(value, least_port=0)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            try:
                ipaddress.ip_network(entry)
            except ValueError as error:
                message = f"{entry}: is no address or network ({error}); write 10.0.0.1 or 10.0.0.0/24"
                raise ValueError(message) from None
        return value

    @field_validator("npm_registry", "pypi_index")
    @classmethod
    def _reachable(cls, value: str) -> str:
        if value and not _REGISTRY.fullmatch(value):
            raise ValueError("must be https://HOST/PATH without a login or another port: sandboxes reach nothing else")
        return value

    @field_validator("provider_hosts")
    @classmethod
    def _are_endpoints(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := "; ".join(hosts_refused(value)):
            raise ValueError(wrong)
        return value

    @field_validator("sandbox_ids")
    @classmethod
    def _is_range(cls, value: str) -> str:
        if value:
            parse_range(value)
        return value

    @field_validator("network_range")
    @classmethod
    def _large_enough(cls, value: IPv4Network) -> IPv4Network:
        if value.prefixlen > 21 or not value.is_private:
            raise ValueError("must be a private range, /21 or larger (1024 addresses are the uplink's)")
        return value

    @model_validator(mode="after")
    def _many_hosts(self) -> "Settings":
        if self.host_name != NAME and self.scheduler == "single":
            raise ValueError(
                f"host_name `{self.host_name}` is one of many hosts; they need scheduler = manual or swarm (with "
                f"single, every sandbox is on host `{NAME}`)"
            )
        if self.scheduler != "single" and not self.database_url.startswith("postgresql"):
            raise ValueError(
                f"scheduler = {self.scheduler} is for many hosts on one store; set database_url to a PostgreSQL "
                "database that all of them reach"
            )
        if self.scheduler == "swarm" and not self.docker_host.startswith("unix:"):
            raise ValueError(
                f"docker_host {self.docker_host}: scheduler = swarm needs the engine of this machine (unix:)"
            )
        return self

    @model_validator(mode="after")
    def _roles(self) -> "Settings":
        missing = [role for role in ROLES if role not in self.roles]
        if missing and self.scheduler == "single":
            raise ValueError(
                "roles: the only host has all of them; leave them out, or set scheduler = manual or swarm (many hosts)"
            )
        if "fleet" in self.roles and "host" not in self.roles:
            raise ValueError(
                "roles: fleet needs host: what belongs to no host, such as MCP servers, runs on the leading one's; "
                "add host, or leave fleet out"
            )
        if "host" not in self.roles and not self.fleet_cert_file:
            raise ValueError(
                "fleet_cert_file: missing; a daemon without the role host reaches each sandbox through its host's, by "
                "certificates: set fleet_cert_file, fleet_key_file and fleet_ca_file (`paddock host join` prepares "
                "them)"
            )
        if "api" not in self.roles and not self.fleet_address:
            raise ValueError(
                "fleet_address: missing; without the role api this daemon answers other daemons alone: set the address "
                "at which they reach it"
            )
        return self

    @model_validator(mode="after")
    def _fleet_files(self) -> "Settings":
        files = {"fleet_cert_file": self.fleet_cert_file, "fleet_key_file": self.fleet_key_file}
        files |= {"fleet_ca_file": self.fleet_ca_file}
        missing = [name for name, file in files.items() if file is None]
        if (self.fleet_address or len(missing) < len(files)) and self.scheduler == "single":
            raise ValueError("fleet_* settings are for many hosts; set scheduler = manual or swarm, or leave them out")
        if missing and (self.fleet_address or len(missing) < len(files)):
            raise ValueError(
                f"{', '.join(missing)}: missing; other daemons are reached and admitted by certificates alone: "
                "set all three (`paddock host join` prepares them)"
            )
        if self.fleet_address:
            parse_address(self.fleet_address)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: the environment, then the file (the init arguments)."""
        return env_settings, init_settings

    def trusted_networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """Return `trusted_proxies` as networks."""
        return tuple(map(ipaddress.ip_network, self.trusted_proxies))

    @property
    def is_host(self) -> bool:
        """True if this daemon keeps the sandboxes of this machine."""
        return "host" in self.roles

    @property
    def place(self) -> str:
        """Name of this daemon's place among the hosts: a host's, or one that no host can have (`api/NAME`)."""
        return self.host_name if self.is_host else f"api/{self.host_name}"

    def user_ids(self) -> IdRange | None:
        """Return the ids that sandboxes have of their own; None: none."""
        return parse_range(self.sandbox_ids) if self.sandbox_ids else None

    def reached(self) -> Reached:
        """Return where other hosts reach this one's daemon, and where Prometheus reads its metrics."""
        name = self.metrics_host
        if name in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
            name = parse_address(self.fleet_address)[0] if self.fleet_address else ""
        if not name or not self.metrics_port or is_loopback(name):
            return Reached(self.fleet_address)
        scheme = "https" if self.metrics_tls_cert_file else "http"
        shown_host = f"[{name}]" if ":" in name else name
        return Reached(self.fleet_address, f"{scheme}://{shown_host}:{self.metrics_port}/metrics")

    def exec_rules(self) -> ExecRules:
        """Return the limits of commands."""
        return ExecRules(
            self.exec_timeout_seconds,
            self.exec_per_sandbox,
            self.exec_output_bytes,
            self.exec_max_seconds,
            self.caller_share,
            self.exec_pause_seconds,
        )

    def transfer_limits(self) -> TransferLimits:
        """Return the limits of file operations."""
        return TransferLimits(
            self.transfers, self.transfers_per_sandbox, self.transfer_max_bytes, self.transfer_stall_seconds
        )

    def image_rules(self) -> ImageWorkRules:
        """Return the rules of pulls, builds and pushes."""
        return ImageWorkRules(
            self.image_build,
            self.image_build_seconds,
            self.image_context_bytes,
            self.image_max_bytes,
            self.push_registries,
        )

    def install_rules(self) -> InstallRules:
        """Return the limits of installs of packages."""
        registries = Registries(self.npm_registry, self.pypi_index)
        return InstallRules(self.package_install_seconds, self.package_install_bytes, registries)

    def port_limits(self) -> PortLimits:
        """Return the limits of port forwards."""
        return PortLimits(self.port_connections, self.port_connections_per_sandbox)

    def database(self) -> str:
        """Return the SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.state_dir / 'paddock.db'}"


def load_settings(path: str | None = None) -> Settings:
    """Load the settings from a file (the default one may be missing) and the environment. Raises SettingsError."""
    file = Path(path) if path else DEFAULT_FILE
    try:
        values = _read(file) if path or file.exists() else {}
        return Settings(**values)
    except ValidationError as error:
        reasons = [f"{'.'.join(str(p) for p in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        raise SettingsError(f"settings ({file} and PADDOCK_* variables): " + "; ".join(reasons)) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; name a readable file with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error
