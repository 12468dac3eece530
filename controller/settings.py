"""One typed model of the host's settings: a TOML file, then PADDOCK_* variables, which win.

Every setting has a default that works; `paddock serve --config FILE` names another file than the default one.
"""

import os
import tomllib
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controller.kinds.access.access import PeerGrant, Role
from controller.kinds.runtime.mount import HostRoot
from controller.kinds.sandbox import HostName
from controller.kinds.securityprofile import ProfileGrants
from controller.policy.mounts import system_folder
from controller.service.sandbox.exec_limits import ExecRules
from controller.service.sandbox.files import TransferLimits
from controller.service.sandbox.port_forward import PortLimits

DEFAULT_FILE = Path("/etc/paddock/paddock.toml")


class SettingsError(Exception):
    """The settings can't be used; every reason, in words."""


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
    """The daemon's settings. Unknown names in the file are errors, so that a typing mistake is not silently ignored."""

    model_config = SettingsConfigDict(env_prefix="PADDOCK_", extra="forbid", frozen=True)

    state_dir: Path = Field(default_factory=_state_dir, description="where the embedded database and the lock live")
    database_url: str = Field(default="", description="SQLAlchemy URL; empty: SQLite in the state folder")
    socket: Path = Field(default_factory=_socket, description="Unix socket of the API, mode 0660")
    socket_group: str = Field(default="", description="group whose members may use the socket; empty: the process's")
    socket_group_role: Role | Literal["none"] = Field(default="admin", description="what that group is granted")
    access: tuple[PeerGrant, ...] = Field(default=(), description="who else may do what, over the socket")
    api_host: str = Field(default="", description="address of the API's TCP door, which takes tokens; empty: none")
    api_port: int = Field(default=9465, ge=0, le=65535, description="0 picks a free one")
    tls_cert_file: Path | None = Field(default=None, description="certificate chain of the TCP door, PEM")
    tls_key_file: Path | None = Field(default=None, description="its private key, PEM, readable by the daemon alone")
    requests_per_second: float = Field(
        default=200.0, ge=0.0, le=1e6, description="of one caller of the API, five seconds' worth at once; 0: no bound"
    )
    requests_in_flight: int = Field(
        default=400, ge=8, le=65536, description="of all callers together, besides streams and work in boxes"
    )
    caller_share: float = Field(
        default=0.5,
        gt=0.0,
        le=1.0,
        description="of what all callers may have together at a time (requests under way, connections, watches, "
        "commands, logs, file operations, connections to ports) one caller may have this share",
    )
    docker_host: str = Field(default="unix:///var/run/docker.sock", description="the engine's address")
    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=9464, ge=0, le=65535, description="0 picks a free one")
    metrics_token_file: Path | None = Field(
        default=None,
        description="a file whose only line is the token that a scrape has to bear; default: none is asked",
    )
    metrics_tls_cert_file: Path | None = Field(default=None, description="PEM; with the key: https instead of http")
    metrics_tls_key_file: Path | None = Field(default=None, description="PEM, without a passphrase")
    metrics_detail: bool = Field(default=False, description="export the families that few people watch, too")
    metrics_labels: tuple[str, ...] = Field(
        default=(), max_length=16, description="labels of sandboxes that are exported, by name; default: none"
    )
    workers: int = Field(
        default=4, ge=1, le=64, description="engine calls at a time; four saturate an engine on 2 cores"
    )
    resync_seconds: float = Field(default=30.0, ge=1.0, le=3600.0)
    standby: bool = Field(
        default=True, description="wait while another daemon acts for the store; false: end with an error"
    )
    orphan_grace_seconds: float = Field(
        default=60.0, ge=1.0, le=86400.0, description="how long a container without an object is let be"
    )
    orphan_share: float = Field(
        default=0.2,
        gt=0.0,
        le=1.0,
        description="at most this share of our containers goes in one sweep (but always one)",
    )
    allowed_images: tuple[str, ...] = Field(
        default=(), description="patterns of the images that may be used (as `paddock/*`); none: any"
    )
    images_by_digest: bool = Field(default=False, description="use an image only where the spec names its digest")
    local_registries: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="registries that images may be pulled from though they are addresses or this host itself, as "
        "their names begin (as `127.0.0.1:5000`)",
    )
    profile_grants: ProfileGrants = Field(
        default=ProfileGrants(), description="what security profiles may have beyond the built-in ones; none"
    )
    gpu_devices: tuple[str, ...] = Field(
        default=(),
        max_length=1024,
        description="the GPUs that sandboxes may have, by index or UUID as the driver names them: then each gets its "
        "own; none: the engine chooses, and two sandboxes may get the same",
    )
    runtimes: tuple[str, ...] = Field(
        default=(), max_length=16, description="runtimes of the engine's that templates may ask for, such as runsc"
    )
    apparmor_profiles: tuple[str, ...] = Field(
        default=(), max_length=64, description="AppArmor profiles that templates may ask for beside docker-default"
    )
    selinux_types: tuple[str, ...] = Field(
        default=(), max_length=64, description="SELinux types that templates may ask for"
    )
    prune_images: Literal["superseded", "unused", "none"] = Field(
        default="superseded",
        description="which images that Paddock's recipes made are removed: those that a newer build took the name of, "
        "all that no sandbox and no template needs, or none; never another image",
    )
    image_grace_seconds: float = Field(
        default=86400.0, ge=60.0, le=1e8, description="how long such an image is kept once nothing needs it"
    )
    exec_timeout_seconds: float = Field(
        default=300.0, ge=0.0, le=1e7, description="how long a command may run that names no limit itself; 0: no limit"
    )
    exec_max_seconds: float = Field(
        default=0.0, ge=0.0, le=1e7, description="how long any command may run, whatever is asked for; 0: no limit"
    )
    exec_per_sandbox: int = Field(default=32, ge=1, le=4096, description="commands at a time in one sandbox")
    exec_output_bytes: int = Field(
        default=1 << 20, ge=256, le=64 << 20, description="how much of stdout, and of stderr, a gathered result keeps"
    )
    network_range: IPv4Network = Field(
        default=IPv4Network("10.213.0.0/16"),
        description="the private range that the networks of sandboxes are taken from; nothing else may use it",
    )
    canary_seconds: float = Field(
        default=300.0,
        ge=5.0,
        le=86400.0,
        description="how often it is tried from inside networks that the guard holds, while sandboxes have any",
    )
    host_roots: tuple[HostRoot, ...] = Field(
        default=(), max_length=64, description="folders below which sandboxes may have folders of this host bound"
    )
    secrets_dir: Path = Field(
        default=Path("/etc/paddock/secrets"), description="secrets, as NAMESPACE/NAME, files that only root may read"
    )
    objects_per_namespace: int = Field(
        default=1500,
        ge=0,
        le=1 << 40,
        description="how many objects of all kinds a namespace may hold where no Quota of it says (`hard.objects`); 0: "
        "any number",
    )
    volumes_per_namespace_bytes: int = Field(
        default=10 << 30, ge=0, description="what the volumes of one namespace may hold together; 0: it has none"
    )
    mounts_dir: Path = Field(
        default=Path("/run/paddock/mounts"), description="where what is bound into sandboxes is mounted first"
    )
    package_sources: tuple[Literal["pip", "npm", "apt"], ...] = Field(
        default=("pip", "npm", "apt"),
        description="the tools of this host whose configured package hosts sandboxes of level build may reach",
    )
    package_hosts: tuple[HostName, ...] = Field(
        default=(), max_length=96, description="host names that they may reach besides; `*.` may stand in front"
    )
    local_network: bool = Field(
        default=False,
        description="sandboxes of level production may ask for the local network (private ranges), too",
    )
    peers: bool = Field(
        default=True,
        description="sandboxes of levels development and build may ask to be joined with others of their namespace",
    )
    attestation: Literal["enforce", "report"] = Field(
        default="enforce", description="what becomes of a sandbox that is not as its level says: stopped, or only told"
    )
    guard_lost: Literal["stop", "pause", "report"] = Field(
        default="pause",
        description="what becomes of sandboxes with the Internet (level production) while the guard of networks is "
        "lost: frozen until it is back, stopped, or only told; sealed levels are confined without it",
    )
    pressure_scale: float = Field(
        default=1.0,
        ge=0.0,
        le=1000.0,
        description="the thresholds below which the host counts as short of memory, disk, inodes or PIDs, times this; "
        "0: it never does",
    )
    stall_seconds: float = Field(
        default=1.5,
        ge=0.5,
        le=3600.0,
        description="a client that takes nothing for so long of what waits for it is cut off, whatever it streams",
    )
    transfers: int = Field(default=32, ge=1, le=1024, description="file operations in boxes at a time")
    transfers_per_sandbox: int = Field(default=8, ge=1, le=1024)
    transfer_max_bytes: int = Field(default=16 << 30, ge=1, description="of one file, or one archive, in or out")
    transfer_stall_seconds: float = Field(
        default=30.0, gt=0, le=3600.0, description="an upload whose client sends nothing for so long is ended"
    )
    port_connections: int = Field(default=512, ge=1, le=65536, description="forwarded to ports of boxes at a time")
    port_connections_per_sandbox: int = Field(default=128, ge=1, le=65536)
    engine_timeout_seconds: float = Field(default=30.0, ge=1.0, le=600.0)
    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("host_roots")
    @classmethod
    def _nothing_of_the_hosts_own(cls, value: tuple[HostRoot, ...]) -> tuple[HostRoot, ...]:
        for each in value:
            if system_folder(each.path):
                raise ValueError(f"{each.path} is, or holds, the host's own {system_folder(each.path)}: name another")
        return value

    @field_validator("network_range")
    @classmethod
    def _large_enough(cls, value: IPv4Network) -> IPv4Network:
        if value.prefixlen > 21 or not value.is_private:
            raise ValueError("must be a private range of a /21 or larger: 1024 addresses are the uplink's")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Variables win over the file, whose values come in as arguments."""
        return env_settings, init_settings

    def exec_rules(self) -> ExecRules:
        """What commands may take."""
        return ExecRules(
            self.exec_timeout_seconds,
            self.exec_per_sandbox,
            self.exec_output_bytes,
            self.exec_max_seconds,
            self.caller_share,
        )

    def transfer_limits(self) -> TransferLimits:
        """What file operations may take."""
        return TransferLimits(
            self.transfers, self.transfers_per_sandbox, self.transfer_max_bytes, self.transfer_stall_seconds
        )

    def port_limits(self) -> PortLimits:
        """How many connections to ports there may be."""
        return PortLimits(self.port_connections, self.port_connections_per_sandbox)

    def database(self) -> str:
        """The SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.state_dir / 'paddock.db'}"


def load_settings(path: str | None = None) -> Settings:
    """The settings of that file (the default one may be missing) and of the environment. SettingsError in words."""
    file = Path(path) if path else DEFAULT_FILE
    try:
        values = _read(file) if path or file.exists() else {}
        return Settings(**values)
    except ValidationError as error:
        reasons = [f"{'.'.join(str(p) for p in each['loc'])}: {each['msg']}" for each in error.errors()]
        raise SettingsError(f"settings ({file} and PADDOCK_* variables): " + "; ".join(reasons)) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; name a readable file with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error
