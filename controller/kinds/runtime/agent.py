"""The agent in a sandbox: its settings in a template, and the places of its runtime (images/agent/README.md).

The runtime is the folder `FOLDER` of the agent's image, in a volume of the engine that is named after the image's id.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from controller.kinds.base import Form, Model, Text

IMAGE = "paddock/agent:1"
# TCP port on the loopback of the sandbox.
PORT = 8500
# Mount point of the runtime.
FOLDER = "/.paddock"
VOLUME_PREFIX = "paddock-agent-"
_DIGEST = "sha256:"

Word = Annotated[
    Text, Field(min_length=1, max_length=65536, pattern=r"^[^\x00]+$"), Form("text without a NUL, and not empty")
]


ModuleName = Annotated[
    Text,
    Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_@][A-Za-z0-9_.@/-]*$"),
    Form("the name of a module, such as matplotlib.pyplot"),
]


class StartedContext(Model):
    """A code context that runs from the start of the sandbox: the default one of its language."""

    language: Literal["python", "javascript", "bash"]
    """Its language; the image needs the interpreter."""
    imports: Annotated[tuple[ModuleName, ...], Field(max_length=64)] = ()
    """Modules that it has loaded, such as numpy. One that the image lacks is an error of the code that uses it."""


class Agent(Model):
    """An agent in the sandbox: it starts the command as its child, and answers MCP on port 8500 of the loopback.

    `agent: {}` is enough. A change needs a new container.
    """

    build: Annotated[tuple[Word, ...], Field(max_length=256)] = ()
    """The command of its tool `build` and its arguments, such as ["make"]. Left out: there is no build command."""
    test: Annotated[tuple[Word, ...], Field(max_length=256)] = ()
    """The command of its tool `test` and its arguments. Left out: there is no test command."""
    root: Annotated[
        Text,
        Field(min_length=2, max_length=4096, pattern=r"^/[^\x00:]*$"),
        Form("an absolute path without a colon"),
    ] = "/workspace"
    """Folder of its file tools, and working directory of its commands."""
    git: Literal["None", "Local", "Remote"] = "Local"
    """Operations of its tool `git`. None. Local: on the repository alone. Remote: clone, fetch, pull and push, too."""
    callers: Literal["Paddock", "Anyone"] = "Paddock"
    """Callers that it answers. Paddock: the daemon alone. Anyone: programs of the sandbox, too.

    A sandbox whose user is root can't be distinguished from the daemon; its status says so.
    """
    contexts: Annotated[tuple[StartedContext, ...], Field(max_length=3)] = ()
    """Code contexts that run from the start, one a language: in a pool's members they wait with all loaded.

    Others begin with their first use.
    """
    project: Annotated[Text, Field(max_length=253)] = ""
    """Project of the sandbox, as MCP_PROJECT_ID, PROJECT_ID and PROJECT_NAME in it, with SECURITY_LEVEL beside them.

    Default: MCP_PROJECT_ID is the namespace, and the others are not set.
    """


@dataclass(frozen=True, slots=True)
class AgentRuntime:
    """A runtime on a host, kept for sandboxes to come. `is_used`: a container of any owner mounts it."""

    image: str
    is_used: bool = False


def volume_name(image: str) -> str:
    """Return the name of the runtime's volume for an agent image's id; "" for anything else than an id."""
    return f"{VOLUME_PREFIX}{image.removeprefix(_DIGEST)[:12]}" if image.startswith(_DIGEST) else ""


def is_runtime(origin: str) -> bool:
    """Return True if this origin of a mount, as the kernel shows it, is a runtime's volume."""
    volume, _, folder = origin.rpartition("/")
    return folder == "_data" and volume.rpartition("/")[2].startswith(VOLUME_PREFIX)
