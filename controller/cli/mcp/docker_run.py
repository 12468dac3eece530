"""An MCP server that a client starts by `docker run`: its image, its arguments and its variables."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.cli.runs import docker_options

TOOLS = ("docker", "podman", "nerdctl")
_RUN = (("run",), ("container", "run"))
_FLAGS = ("--interactive", "--tty", "--rm", "--init", "--quiet", "--read-only", "--sig-proxy")
_SHORT_FLAGS = re.compile(r"-[itq]+")
# What a sandbox has anyway, more strictly than asked, or has no use for.
_IDLE = (
    *("--name", "--pull", "--label", "-l", "--hostname", "-h"),
    *("--user", "-u", "--cap-drop", "--security-opt", "--log-driver", "--stop-timeout"),
)
_LIMITS = ("--memory", "-m", "--cpus", "--pids-limit")
_ENV, _NETWORK, _ENTRYPOINT, _FOLDER = ("--env", "-e"), ("--network", "--net"), ("--entrypoint",), ("--workdir", "-w")
_WITH_VALUE = (*_IDLE, *_LIMITS, *_ENV, *_NETWORK, *_ENTRYPOINT, *_FOLDER)


class NotTaken(Exception):
    """The command line has an option that a sandbox does not honour; the message names it."""


@dataclass(frozen=True, slots=True)
class DockerRun:
    """Container of a command line.

    `unset` are variables without a value; `network` and `folder` are "" if it names none; `limits` are the options that
    set some.
    """

    image: str
    entrypoint: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    unset: tuple[str, ...]
    network: str
    limits: tuple[str, ...]
    folder: str = ""


def name_of(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return re.split("[:@]", image.rpartition("/")[2])[0]


def parse(args: Sequence[str], env: Mapping[str, str]) -> DockerRun | None:
    """Return what the tool's arguments start; None if they start no image. `env` are the variables of the tool itself.

    Raises NotTaken.
    """
    run = next((prefix for prefix in _RUN if tuple(args[: len(prefix)]) == prefix), None)
    if run is None:
        return None
    remaining = list(args[len(run) :])
    variables: dict[str, str] = {}
    unset: list[str] = []
    limits: list[str] = []
    network = entrypoint = folder = ""
    while remaining and remaining[0].startswith("-"):
        option, value = _option(remaining)
        if option in _ENV:
            name, has_value, text = value.partition("=")
            if has_value or name in env:
                variables[name] = text if has_value else env[name]
            else:
                unset.append(name)
        elif option in _LIMITS:
            limits.append(f"{option} {value}")
        elif option in _NETWORK:
            network = value
        elif option in _ENTRYPOINT:
            entrypoint = value
        elif option in _FOLDER:
            folder = value
    if not remaining:
        return None
    return DockerRun(
        image=remaining[0],
        entrypoint=entrypoint,
        args=tuple(remaining[1:]),
        env=variables,
        unset=tuple(unset),
        network=network,
        limits=tuple(limits),
        folder=folder,
    )


def _option(remaining: list[str]) -> tuple[str, str]:
    """Take the next option, and its value if it has one. Raises NotTaken."""
    try:
        option, value = docker_options.take(remaining)
    except docker_options.UnknownOption as error:
        raise NotTaken(str(error)) from error
    if option not in (*_FLAGS, *_WITH_VALUE) and not _SHORT_FLAGS.fullmatch(option):
        raise NotTaken(option)
    return option, value
