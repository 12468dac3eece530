"""Checks of an image's configuration before a container is created from it.

Refused unless the spec overrides them:

- a VOLUME: it is writable without a limit, even where the root file system is read-only
- variables of the loader: they load the image's code into every program in the sandbox
- a working directory in the kernel's folders: it may lead out of the sandbox (CVE-2024-21626)
- a program or directory name longer than any kernel path (see exec/stuck_exec.py)
- a user that is another sandbox's own

Labels that look like ours are emptied. The image's health check has no effect, nor has its user where the level fixes
one, or where the image says that it fits any. Notes report setuid files (no-new-privileges makes them harmless) and an
image that runs as root.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.images.accounts import FILES, account_files
from controller.engine.images.image_files import etc_files
from controller.engine.images.image_layers import setuid_files
from controller.kinds.common.exec_paths import in_kernel_paths, normal_path, too_long
from controller.kinds.common.labels import blanked_labels, fits_any_user
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID, SHARED_ID, own_id

# Variables by which the loader, or libc when it converts text, loads code into any program.
_LOADER = (
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LD_AUDIT",
    "LD_DYNAMIC_WEAK",
    "LD_LIBRARY_PATH",
    "LD_ORIGIN_PATH",
    "LD_PRELOAD",
    "LD_PROFILE",
)
_ROOT = ("", "0", "root")
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """Result of the checks of one image.

    `refusal` is the reason to create no container ("" for none); `terminal`: it holds until the spec changes. `labels`
    override the image's. `notes` are for users. `counted` bytes of the image count towards the container's quota.
    `user` is the one to run as; "": the image's. `groups` are those that another user than the image's needs to write
    in the image's folders. `accounts` are the files in /etc that name this user (see images/accounts.py).
    `env` are the image's variables.
    """

    refusal: str
    labels: Mapping[str, str]
    notes: tuple[str, ...] = ()
    counted: int = 0
    terminal: bool = False
    user: str = ""
    groups: tuple[str, ...] = ()
    accounts: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def check_image(client: Client, image: str, config: ContainerConfig) -> ImageCheck:
    """Check an image before a container of that config is created from it. Raises Fault (404: no such image)."""
    image_json = client.image(image)
    data = image_json.get("Config") or {}
    config = replace(config, user=config.user or user_with(data, config.own_id))
    setuid = setuid_files(image_json) if client.base_url.startswith(("unix:", "http+unix:")) else None
    notes = tuple(_notes(data, config, setuid))
    # A btrfs quota counts the whole subvolume, and a container's begins as a snapshot of its image's.
    counted = int(image_json.get("Size") or 0) if (image_json.get("GraphDriver") or {}).get("Name") == "btrfs" else 0
    fixed = [*_paths_refused(data, config), *_user_refused(data, config)]
    image_id = str(image_json.get("Id") or image)
    is_local = client.base_url.startswith(("unix:", "http+unix:"))
    return ImageCheck(
        "; ".join((*fixed, *_refusals(data, config))),
        blanked_labels(data.get("Labels") or {}),
        notes,
        counted,
        bool(fixed),
        user=config.user,
        groups=_groups(data, config),
        env=_variables(data),
        accounts=account_files(image_json, config, lambda: etc_files(client, image_id, FILES)) if is_local else {},
    )


def user_with(data: Mapping[str, Any], own_uid: int) -> str:
    """Return the user of a container that gets this id of its own, by the image's config; "": the image's.

    Only images whose files fit any user take it, and only for Paddock's user: root, or another user, is there for a
    reason.
    """
    fits = own_id(str(data.get("User") or "")) == SHARED_ID and fits_any_user(data.get("Labels") or {})
    return f"{own_uid}:{own_uid}" if own_uid and fits else ""


def _groups(data: Mapping[str, Any], config: ContainerConfig) -> tuple[str, ...]:
    """Return the group of Paddock's images for another user above those of any distribution."""
    has_other_id = own_id(config.user) >= LOWEST_FREE_ID and own_id(config.user) != SHARED_ID
    return (str(SHARED_ID),) if has_other_id and own_id(str(data.get("User") or "")) == SHARED_ID else ()


def _notes(data: Mapping[str, Any], config: ContainerConfig, setuid: tuple[str, ...] | None) -> Iterator[str]:
    if not config.user and str(data.get("User") or "").partition(":")[0] in _ROOT:
        yield f"the image {config.image} runs as root; set spec.template.user to run as another user"
    idle = any(option.startswith("no-new-privileges") for option in config.security_options)
    if setuid is None and not idle:
        yield (
            f"it is unknown if the image {config.image} has setuid or setgid files, which let programs become other"
            " users in this sandbox: its layers can't be read here"
        )
    if setuid:
        more_text = f" and {len(setuid) - _SHOWN} more" if len(setuid) > _SHOWN else ""
        effect = "gain nothing in this sandbox" if idle else "let programs become other users in this sandbox"
        file_names = f"{', '.join(setuid[:_SHOWN])}{more_text}"
        yield f"the image {config.image} has setuid or setgid files, which {effect}: {file_names}"


def _paths_refused(data: Mapping[str, Any], config: ContainerConfig) -> Iterator[str]:
    """Yield a refusal for each bad path: the program's and the working directory's."""
    folder, image = str(data.get("WorkingDir") or ""), config.image
    if config.working_dir:
        folder = ""
    if long := too_long(folder):
        yield f"the WORKDIR of the image {image} has {long}; set spec.template.workingDir"
    elif folder and in_kernel_paths(folder):
        yield (
            f"the image {image} has the WORKDIR {folder}, which belongs to the kernel and may lead out of the sandbox; "
            "set spec.template.workingDir, or build the image without it"
        )
    program = next(iter([*(data.get("Entrypoint") or ()), *(config.args or data.get("Cmd") or ())]), "")
    if config.command is None and (long := too_long(program)):
        yield f"the program's name in the image {image} has {long}; set spec.template.command"


def _user_refused(data: Mapping[str, Any], config: ContainerConfig) -> Iterator[str]:
    """Yield a refusal for an image's user who is another sandbox's own; names are compared once it runs."""
    user, owned = str(data.get("User") or ""), config.owned_ids
    if not config.user and owned is not None and any(own_id(component) in owned for component in user.split(":")):
        yield (
            f"the image {config.image} has the USER {user}, one of {owned}, of which each sandbox gets one of its own; "
            "set spec.template.user, or build the image with another"
        )


def _refusals(data: Mapping[str, Any], config: ContainerConfig) -> Iterator[str]:
    covered = {folder.path for folder in config.tmpfs} | {slot.path for slot in config.slots}
    paths = sorted({normal_path(path) for path in data.get("Volumes") or {}} - covered)  # as the engine compares them
    if paths:
        names = [f"image-data{f'-{number}' if number > 1 else ''}" for number in range(1, len(paths) + 1)]
        claims = ", ".join(
            f"{{name: {name}, mountPath: {path}, size: 1Gi}}" for name, path in zip(names, paths, strict=True)
        )
        folders = ", ".join(f"{{mountPath: {path}, size: 64Mi}}" for path in paths)
        yield (
            f"the image {config.image} declares VOLUME {', '.join(paths)}, which would be writable without a limit; "
            f"add to spec.template `volumeClaimTemplates: [{claims}]`, or in memory `tmpfs: [{folders}]`,"
            " or build the image without it"
        )
    own_variables = {name for name, _ in config.env}
    variables = _variables(data)
    loader = [name for name in _LOADER if variables.get(name) and name not in own_variables]
    if loader:
        settings = ", ".join(f"{{name: {name}, value: ''}}" for name in loader)
        yield (
            f"the image {config.image} sets {', '.join(loader)}, which loads its code into every program there;"
            " set the value you want (`docker inspect` shows the image's own) in spec.template.env: "
            f"[{settings}], or build the image without it"
        )


def _variables(data: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(variable.partition("=")[::2] for variable in data.get("Env") or ())
