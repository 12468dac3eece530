"""Settings of the agent: one JSON object from the daemon, checked as a whole."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from typing import Any


ENVIRONMENT = "PADDOCK_AGENT"
GIT = ("None", "Local", "Remote")
CALLERS = ("Paddock", "Anyone")
CONTEXT_LANGUAGES = ("python", "javascript", "bash")


class SettingsError(Exception):
    """Everything wrong with the settings, a line each."""


class Settings:
    """Settings that the daemon renders from `template.agent`, and where to listen."""

    def __init__(self) -> None:
        self.root = "/workspace"
        self.build: list[str] = []
        self.test: list[str] = []
        self.git = "Local"
        self.callers = "Paddock"
        self.address = "127.0.0.1"
        self.port = 8500
        self.project = ""
        self.level = ""
        self.max_connections = 64
        self.max_execs = 16
        self.contexts: list[dict[str, Any]] = []

    def update(self, given: Any) -> None:
        """Take the values of a JSON object; refuse unknown keys and wrong types, all at once."""
        if not isinstance(given, dict):
            raise SettingsError("settings: must be a JSON object")
        problems = [problem for key, value in given.items() if (problem := self._problem(key, value))]
        if problems:
            raise SettingsError("\n".join(problems))
        for key, value in given.items():
            setattr(self, key, value)

    def _problem(self, key: str, value: Any) -> str:
        if key not in vars(self):
            return f"settings: `{key}` is unknown; known are {', '.join(sorted(vars(self)))}"
        if key in ("git", "callers"):
            known = GIT if key == "git" else CALLERS
            return "" if value in known else f"settings: `{key}` must be one of {', '.join(known)}"
        if key == "contexts":
            return "" if _are_contexts(value) else "settings: `contexts` must be a list of {language, imports}"
        if isinstance(getattr(self, key), list):
            good = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
            return "" if good else f"settings: `{key}` must be a list of words"
        if isinstance(getattr(self, key), int):
            least = 0 if key == "port" else 1
            good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= 65535
            return "" if good else f"settings: `{key}` must be a number from {least} to 65535"
        if not isinstance(value, str) or "\0" in value:
            return f"settings: `{key}` must be a text"
        if key == "root" and not value.startswith("/"):
            return "settings: `root` must be an absolute path"
        return ""


def _are_contexts(value: Any) -> bool:
    """Return if this is a list of languages, each once, and the modules that each has loaded."""
    if not isinstance(value, list) or not all(isinstance(context, dict) for context in value):
        return False
    languages = [context.get("language") for context in value]
    return len(set(map(str, languages))) == len(value) and all(
        language in CONTEXT_LANGUAGES
        and set(context) <= {"language", "imports"}
        and isinstance(context.get("imports", []), list)
        and all(isinstance(name, str) for name in context.get("imports", []))
        for language, context in zip(languages, value)  # noqa: B905 - they are of one length
    )


def parse(arguments: list[str], environment: dict[bytes, bytes]) -> tuple[Settings, list[str]]:
    """Read the arguments before `--` and the environment; return the settings and the command after `--`."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = arguments[:cut], arguments[cut + 1 :]
    settings = Settings()
    given = environment.pop(os.fsencode(ENVIRONMENT), b"")
    if given:
        settings.update(_decode(os.fsdecode(given), ENVIRONMENT))
    while options:
        option = options.pop(0)
        if option not in ("--settings", "--address", "--port") or not options:
            raise SettingsError(f"usage: [--settings JSON] [--address IP] [--port N] [-- COMMAND ...]; not `{option}`")
        value = options.pop(0)
        if option == "--settings":
            settings.update(_decode(value, option))
        elif option == "--port":
            settings.update({"port": int(value) if value.isdecimal() else value})
        else:
            settings.update({"address": value})
    return settings, command


def _decode(text: str, origin: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise SettingsError(f"{origin}: is not valid JSON") from None


def initial_environment() -> dict[bytes, bytes]:
    """Environment as the process got it: the interpreter itself adds LC_CTYPE to its own."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (line.partition(b"=") for line in file.read().split(b"\0") if line)
        return {name: value for name, _, value in pairs}


def child_environment(settings: Settings, environment: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Environment of the user's command and of every exec."""
    result = dict(environment)
    result[b"MCP_MODE"] = b"sandbox"
    result[b"MCP_ENABLED"] = b"true"
    for name, value in ((b"MCP_PROJECT_ID", settings.project), (b"MCP_SECURITY_LEVEL", settings.level)):
        if value:
            result[name] = os.fsencode(value)
    return result
