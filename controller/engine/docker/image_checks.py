"""What an image would bring along that its container must not have.

An image's VOLUME is writable and without a limit even where the root file system is read-only, so each one has to be
covered by a folder of the spec's own. Its variables for the loader put code of its own into every program that runs in
the sandbox, one that was bound into it too, so the spec has to set them itself. Either is refused otherwise. So are a
working directory in the kernel's folders, which may lead out of the sandbox (CVE-2024-21626), and a program or
directory whose name is longer than any path of the kernel's (see exec/stuck_exec.py), unless the spec names its own.
Labels of it that would pass for ours are emptied; its health check, and its user where the level fixes one, have no
effect. Told are its setuid files (which gain nothing with no-new-privileges) and, where the sandbox runs as the image
says, that this is root.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.image_layers import setuid_files
from controller.kinds.common.exec_paths import in_kernel_paths, too_long
from controller.kinds.common.labels import emptied
from controller.kinds.runtime.container import ContainerConfig

# By these an image decides which code the loader, or libc when it converts text, takes into any program.
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
class Looked:
    """`refusal` is why no container is made of the image ("" when one may be), `labels` are to be laid over its own.

    `notes` are what its users should know, `counted` how many bytes of it count as the container's own. `terminal`: it
    is refused until the spec changes.
    """

    refusal: str
    labels: Mapping[str, str]
    notes: tuple[str, ...] = ()
    counted: int = 0
    terminal: bool = False


def look_into(client: Client, image: str, config: ContainerConfig) -> Looked:
    """Look at an image before a container of that config is made of it. Raises Fault (404: no such image)."""
    found = client.call("images.inspect", lambda api: api.inspect_image(image))
    data = found.get("Config") or {}
    setuid = setuid_files(found) if client.base_url.startswith(("unix:", "http+unix:")) else None
    notes = tuple(_notes(data, config, setuid or ()))
    # A btrfs quota is of all that a subvolume shows, and a container's begins as a snapshot of its image's.
    counted = int(found.get("Size") or 0) if (found.get("GraphDriver") or {}).get("Name") == "btrfs" else 0
    paths, others = list(_paths_refused(data, config)), list(_refusals(data, config))
    return Looked("; ".join((*paths, *others)), emptied(data.get("Labels") or {}), notes, counted, bool(paths))


def _notes(data: Mapping[str, Any], config: ContainerConfig, setuid: tuple[str, ...]) -> Iterator[str]:
    if not config.user and str(data.get("User") or "").partition(":")[0] in _ROOT:
        yield f"the image {config.image} runs as root; set spec.template.user to run as somebody else"
    if setuid:
        more = f" and {len(setuid) - _SHOWN} more" if len(setuid) > _SHOWN else ""
        idle = any(each.startswith("no-new-privileges") for each in config.security_options)
        effect = "gain nothing in this sandbox" if idle else "let programs become other users in this sandbox"
        shown = f"{', '.join(setuid[:_SHOWN])}{more}"
        yield f"the image {config.image} has setuid or setgid files, which {effect}: {shown}"


def _paths_refused(data: Mapping[str, Any], config: ContainerConfig) -> Iterator[str]:
    """Reasons why its program can't be run, or not in its working directory."""
    folder, image = str(data.get("WorkingDir") or ""), config.image
    if config.working_dir:
        folder = ""
    if long := too_long(folder):
        yield f"the WORKDIR of the image {image} has {long}; name another with spec.template.workingDir"
    elif folder and in_kernel_paths(folder):
        yield (
            f"the image {image} has the WORKDIR {folder}, which belongs to the kernel and may lead out of the sandbox; "
            "name another with spec.template.workingDir, or build the image without it"
        )
    program = next(iter([*(data.get("Entrypoint") or ()), *(data.get("Cmd") or ())]), "")
    if config.command is None and (long := too_long(program)):
        yield f"the program's name in the image {image} has {long}; name another with spec.template.command"


def _refusals(data: Mapping[str, Any], config: ContainerConfig) -> Iterator[str]:
    covered = {each.path for each in config.tmpfs} | {each.path for each in config.slots}
    paths = sorted(path for path in data.get("Volumes") or {} if path.rstrip("/") not in covered)
    if paths:
        folders = ", ".join(f"{{mountPath: {path}, size: 64Mi}}" for path in paths)
        yield (
            f"the image {config.image} declares VOLUME {', '.join(paths)}, which would be writable without a limit; "
            f"cover it with spec.template.tmpfs: [{folders}], or build the image without it"
        )
    own = {name for name, _ in config.env}
    variables = dict(each.partition("=")[::2] for each in data.get("Env") or ())
    loader = [name for name in _LOADER if variables.get(name) and name not in own]
    if loader:
        settings = ", ".join(f"{{name: {name}, value: ''}}" for name in loader)
        yield (
            f"the image {config.image} sets {', '.join(loader)}, which puts its code into every program in the sandbox;"
            " say what you want it to be (`docker inspect` shows the image's own) with spec.template.env: "
            f"[{settings}], or build the image without it"
        )
