"""Options of `docker run`: which take a value, and what to write in place of those that a sandbox has not.

One list for all who read such a command line: `paddock run`, and an MCP server that a client starts by `docker run`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from controller.cli.errors import CliError, UsageProblem

_FLAGS = frozenset(
    (
        *("--detach", "-d", "--disable-content-trust", "--init", "--interactive", "-i", "--no-healthcheck", "--quiet"),
        *("-q", "--oom-kill-disable", "--privileged", "--publish-all", "-P", "--read-only", "--rm", "--sig-proxy"),
        *("--tty", "-t"),
    )
)
# Flags and options that a sandbox satisfies anyway, more strictly than asked, or has no use for.
IDLE_FLAGS = ("--init", "--read-only", "--sig-proxy", "--quiet", "-q", "--no-healthcheck", "--disable-content-trust")
IDLE = ("--cap-drop", "--log-driver", "--log-opt")
# Those of kubectl that come with its `run`.
KUBECTL_FLAGS = ("--command",)
KUBECTL = ("--image-pull-policy",)

_LEVEL = "a security level decides this; write --level NAME (`paddock get securityprofiles`)"
_NONE = "a sandbox has no such setting; leave it out"
_FORWARD = "no port is published; run it with -d --name NAME, and write `paddock port-forward NAME {value}`"
# Option with a value -> what is wrong with it, and what to write instead.
REFUSED: Mapping[str, str] = {
    "--publish": _FORWARD,
    "-p": _FORWARD,
    "--mount": "not read here; write -v NAME:/PATH for a volume of the namespace",
    "--tmpfs": "not read here; write `tmpfs` into a spec (`paddock explain sandbox.spec.template.tmpfs`)",
    "--shm-size": "not read here; write `shmSize` into a spec (`paddock explain sandbox.spec.template.shmSize`)",
    "--label": "labels are Paddock's; write `paddock label sandbox NAME {value}` afterwards",
    "-l": "labels are Paddock's; write `paddock label sandbox NAME {value}` afterwards",
    "--labels": "labels are Paddock's; write `paddock label sandbox NAME {value}` afterwards",
    "--hostname": "the host name is that of the sandbox; write --name NAME",
    "--platform": "images are of the host's platform; leave it out",
    **dict.fromkeys(("--cap-add", "--device", "--security-opt", "--runtime", "--userns", "--sysctl"), _LEVEL),
    **dict.fromkeys(("--pid", "--ipc", "--uts", "--cgroupns", "--cgroup-parent", "--device-cgroup-rule"), _LEVEL),
    **dict.fromkeys(("--add-host", "--dns", "--dns-option", "--dns-search", "--ip", "--ip6", "--link"), _NONE),
    **dict.fromkeys(("--mac-address", "--network-alias", "--expose", "--volumes-from", "--volume-driver"), _NONE),
    **dict.fromkeys(("--storage-opt", "--ulimit", "--group-add", "--isolation", "--cidfile", "--attach", "-a"), _NONE),
    **dict.fromkeys(("--annotation", "--label-file", "--detach-keys", "--domainname", "--stop-signal"), _NONE),
    **dict.fromkeys(("--memory-swap", "--memory-reservation", "--memory-swappiness", "--kernel-memory"), _NONE),
    **dict.fromkeys(("--cpu-period", "--cpu-quota", "--cpu-shares", "--cpuset-cpus", "--cpuset-mems"), _NONE),
    **dict.fromkeys(("--blkio-weight", "--oom-score-adj", "--stop-timeout", "--health-cmd", "--port"), _NONE),
    **dict.fromkeys(("--health-interval", "--health-retries", "--health-start-period", "--health-timeout"), _NONE),
    **dict.fromkeys(("--overrides", "--pod-running-timeout", "--field-manager"), _NONE),
}
REFUSED_FLAGS: Mapping[str, str] = {
    "--privileged": _LEVEL,
    "--publish-all": _FORWARD.replace("{value}", "8080:80"),
    "-P": _FORWARD.replace("{value}", "8080:80"),
    "--oom-kill-disable": _NONE,
}
_TAKEN = (
    *("--env", "-e", "--env-file", "--workdir", "-w", "--name", "--memory", "-m", "--cpus", "--pids-limit", "--gpus"),
    *("--volume", "-v", "--network", "--net", "--user", "-u", "--entrypoint", "--restart", "--pull", "-h"),
)
_WITH_VALUE = frozenset((*_TAKEN, *IDLE, *REFUSED))
_SHORT_FLAGS = re.compile(r"-[itqdP]+")

_MEMORY = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>[bkmgt]?)b?|(?P<own>[0-9]+[KMGT]i)", re.IGNORECASE)
_SPEC_UNITS = ("M", "G", "T")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_CPUS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?|\.[0-9]{1,3}")
_USER = re.compile(r"[0-9]{1,10}(:[0-9]{1,10})?")
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?/)?"
_IMAGE = re.compile(rf"{_HOST}{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@[a-z0-9]+:[0-9a-f]{{32,}})?")


class UnknownOption(Exception):
    """`docker run` has no such option; the message names it."""


class Volume(NamedTuple):
    """A volume of the namespace, and where it is mounted."""

    name: str
    path: str
    read_only: bool = False


def take(arguments: list[str]) -> tuple[str, str]:
    """Take the next option of `docker run`, and its value ("": a flag), from the words. Raises UnknownOption."""
    word = arguments.pop(0)
    option, joined, value = word.partition("=")
    if word[:2] in _WITH_VALUE and len(word) > 2:  # -eNAME=VALUE
        return word[:2], word[2:].removeprefix("=")
    if option in _FLAGS or _SHORT_FLAGS.fullmatch(word):
        return option, value
    if option not in _WITH_VALUE:
        raise UnknownOption(option)
    if joined:
        return option, value
    return option, arguments.pop(0) if arguments else ""


def refusal(option: str, value: str = "") -> str:
    """Return why an option is refused, and what to write."""
    subject = f"{option} {value}".rstrip()
    line = REFUSED[option] if option in REFUSED else REFUSED_FLAGS[option]
    return f"{subject}: {line.format(value=value)}"


def is_image(word: str) -> bool:
    """Return True if an image may have that name."""
    return _IMAGE.fullmatch(word) is not None


def memory(text: str) -> int | str:
    """Return the memory limit of `-m 512m`. Raises UsageProblem.

    A lower-case suffix is Docker's (2g = 2Gi), an upper-case one is a spec's: 8G and 8Gi stay as they are written.
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise UsageProblem(f"--memory {text}: not understood; write a size such as 512m or 2g")
    if match["own"]:
        return f"{text[:-2]}{text[-2].upper()}i"
    if text[-1] in _SPEC_UNITS:
        return text
    return int(float(match["number"]) * _UNITS[match["unit"].lower()])


def cpu(text: str) -> str:
    """Return the CPU limit of `--cpus 1.5`. Raises UsageProblem."""
    if not _CPUS.fullmatch(text) or not float(text):
        raise UsageProblem(f"--cpus {text}: not understood; write a number of cores such as 1.5")
    return f"{round(float(text) * 1000)}m"


def user_ids(text: str) -> str:
    """Return the user of `--user 1000:1000`. Raises UsageProblem."""
    if text and not _USER.fullmatch(text):
        raise UsageProblem(f"--user {text}: a sandbox knows no names of users; write numbers: --user 1000:1000")
    return text


def check_network(text: str) -> None:
    """Raise UsageProblem for a network other than none, which is the default."""
    if text not in ("", "none"):
        advice = "a sandbox joins no network of Docker's; for the host names that a level allows"
        raise UsageProblem(f"--network {text}: {advice} write --level development")


def check_restart(text: str) -> None:
    """Raise UsageProblem for a restart policy other than never."""
    if text.lower() not in ("", "no", "never"):
        advice = "`run` ends with its command; write `restartPolicy` into a spec"
        raise UsageProblem(f"--restart {text}: {advice}, and `paddock apply` it")


def check_pull(text: str) -> None:
    """Raise UsageProblem for a policy other than to pull what is missing."""
    if text not in ("", "missing"):
        raise UsageProblem(f"--pull {text}: only a missing image is pulled; write `paddock image pull IMAGE` before")


def volume(text: str) -> Volume:
    """Parse `-v NAME:/PATH[:ro]`. Raises UsageProblem."""
    source, _, mount = text.partition(":")
    path, _, mode = mount.partition(":")
    if source.startswith(("/", ".", "~")):
        advice = "folders of the host are not mounted here; copy it (`paddock cp`), or write `workspace: {hostPath:"
        raise UsageProblem(f"-v {text}: {advice} {os.path.abspath(os.path.expanduser(source))}}}` into a spec")
    if not source or not path.startswith("/"):
        raise UsageProblem(f"-v {text}: not understood; write NAME:/PATH for a volume of the namespace")
    if mode not in ("", "rw", "ro"):
        raise UsageProblem(f"-v {text}: `{mode}` is not supported; write NAME:/PATH, or NAME:/PATH:ro")
    return Volume(source, path, mode == "ro")


def environment(env: Iterable[str], files: Iterable[str], own_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `-e` and `--env-file`. Those without a value have that of `own_environment`.

    Raises UsageProblem, CliError.

    As at Docker, `-e` comes before a file, and a file's name without a value that is not set is left out.
    """
    variables = {name: value for file in files for name, value in _of_file(file, own_environment)}
    for assignment in env:
        name, equals, value = assignment.partition("=")
        if not name or (not equals and name not in own_environment):
            raise UsageProblem(f"--env {assignment}: has no value, and is not set here; write --env NAME=VALUE")
        variables[name] = value if equals else own_environment[name]
    return variables


def _of_file(file: str, own_environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a file. Raises UsageProblem, CliError."""
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CliError(f"--env-file {file}: {reason}; name a file of NAME=VALUE lines that you can read") from error
    for number, line in enumerate(lines, 1):
        text = line.lstrip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not name or re.search(r"\s", name):
            raise UsageProblem(f"--env-file {file}:{number}: not a variable; write NAME=VALUE")
        if equals or name in own_environment:
            yield name, value if equals else own_environment[name]
