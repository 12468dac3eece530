"""Completion of a command line: commands, options, kinds, and the names of objects in the daemon.

An unreachable or slow daemon completes nothing: a press of TAB never fails and never waits long.
Commands and options are click's own completion; beside it are only the names of kinds and of objects.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete

FILES, NO_SPACE = ":files", ":nospace"
_TIMEOUT_SECONDS = 1.0
_FILES = ("files_", "patch_file", "config")
_NAMED = {  # command -> the kind that its arguments name; a command that is not here names no objects of the daemon
    **dict.fromkeys(("attest", "exec", "execs", "inspect", "logs", "port-forward", "restart", "shell"), "sandboxes"),
    **dict.fromkeys(("network check", "top", "rollout restart", "project open", "project close"), "sandboxes"),
    **dict.fromkeys(("sandbox get", "sandbox list", "sandbox describe", "sandbox delete"), "sandboxes"),
    **dict.fromkeys(("sandbox start", "sandbox stop"), "sandboxes"),
    **dict.fromkeys(("host cordon", "host uncordon", "host drain", "host release", "host remove"), "hosts"),
    **dict.fromkeys(("mcp approve", "mcp connect", "mcp disable", "mcp enable"), "mcpservers"),
    **dict.fromkeys(("workflow artifacts", "workflow cancel", "workflow logs"), "workflowruns"),
    "workflow run": "workflows",
    **dict.fromkeys(("plugin config", "plugin remove"), "plugins"),
    **dict.fromkeys(("config provider add", "config provider remove"), "providers"),
}
_STATES = ("Running", "Suspended", "Paused", "Hibernated")
_READING = ("get", "describe", "wait", "events")  # commands that take kinds which can only be read
# From a path below the API's version to the JSON there; None when the daemon does not answer.
Ask = Callable[[str], Any]


class _Complete(ShellComplete):
    """click's own completion, for what it knows; its script is never used."""

    name = "words"


def candidates(
    root: click.Command, arguments: list[str], server: str | None, context: str | None = None, ask: Ask | None = None
) -> list[str]:
    """Return the completions of the last word. `:files` stands for file names, `:nospace` for "the word goes on"."""
    arguments = _join_equals(arguments)
    preceding, word = arguments[:-1], arguments[-1] if arguments else ""
    option, equals, value = word.partition("=")
    if equals and option.startswith("--"):
        preceding, word = [*preceding, option], value
    return list(dict.fromkeys(_completions(root, preceding, word, ask or _asker(preceding, server, context))))


def _join_equals(arguments: Sequence[str]) -> list[str]:
    """Join the three words into which bash splits `--output=yaml`."""
    joined: list[str] = []
    for at, word in enumerate(arguments):
        if word == "=" and at and joined:
            joined[-1] += "="
        elif at and joined and arguments[at - 1] == "=" and joined[-1].endswith("="):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _completions(root: click.Command, preceding: list[str], word: str, ask: Ask) -> Iterator[str]:
    command, path, remaining = _command(root, preceding)
    option = _waiting_option(command, remaining[-1]) if remaining and "--" not in remaining else None
    if option is not None:
        yield from _of_option(option, root, preceding, word, ask)
        return
    before = _positionals(command, remaining)
    if word.startswith("-") or isinstance(command, click.Group):
        yield from _clicks(root, preceding, word)
    elif kind := _NAMED.get(path) or _NAMED.get(path.removeprefix("sandbox ")):
        yield from _with_prefix(_names(ask, kind), word) if not before or _repeats(command) else ()
    elif (argument := _argument(command)) is not None:
        yield from _objects(argument, command, before, word, ask)
    else:
        yield from _clicks(root, preceding, word)


def _repeats(command: click.Command) -> bool:
    """Tell if the first argument takes several names."""
    return next(param.nargs for param in command.params if isinstance(param, click.Argument)) == -1


def _clicks(root: click.Command, preceding: list[str], word: str) -> Iterator[str]:
    items: list[CompletionItem] = _Complete(root, {}, "paddock", "_PADDOCK").get_completions(preceding, word)
    yield from (str(item.value) for item in items if item.type == "plain")


def _command(root: click.Command, preceding: Sequence[str]) -> tuple[click.Command, str, list[str]]:
    """Return the command that these words select, its name with that of its groups, and the words after it."""
    command = root
    remaining = list(preceding)
    context = click.Context(root, info_name="paddock")
    path: list[str] = []
    while isinstance(command, click.Group):
        at = next((at for at, word in enumerate(remaining) if command.get_command(context, word)), None)
        if at is None:
            break
        inner = command.get_command(context, remaining[at])
        assert inner is not None
        path.append(remaining[at])
        command, remaining = inner, remaining[at + 1 :]
        context = click.Context(command, parent=context)
    return command, " ".join(path), remaining


def _waiting_option(command: click.Command, last: str) -> click.Option | None:
    """Return the option that takes a value, if the last word is one."""
    for param in command.params:
        if isinstance(param, click.Option) and last in param.opts and not param.is_flag:
            return param
    return None


def _of_option(option: click.Option, root: click.Command, preceding: list[str], word: str, ask: Ask) -> Iterator[str]:
    if option.name in _FILES:
        yield FILES
    elif option.name == "namespace":
        yield from _with_prefix(_namespaces(ask), word)
    else:
        yield from _clicks(root, preceding, word)


def _argument(command: click.Command) -> str | None:
    names = [param.name for param in command.params if isinstance(param, click.Argument)]
    return names[0] if names and names[0] in ("what", "shell") else None


def _positionals(command: click.Command, remaining: Sequence[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    positionals, skip = [], False
    for word in remaining:
        if skip or word.startswith("-"):
            skip = not skip and "=" not in word and _waiting_option(command, word) is not None
            continue
        positionals.append(word)
    return positionals


def _objects(argument: str, command: click.Command, before: Sequence[str], word: str, ask: Ask) -> Iterator[str]:
    if argument == "shell":
        yield from _with_prefix(("bash", "zsh", "fish") if not before else (), word)
    elif command.name == "explain":
        yield from _fields(word) if not before else ()
    elif "/" in word:
        kind, _, start = word.partition("/")
        yield from (f"{kind}/{name}" for name in _names(ask, kind) if name.startswith(start))
    elif not before:
        yield from _with_prefix(_kinds(ask, command), word)
    else:
        yield from _later(command, before, word, ask)


def _later(command: click.Command, before: Sequence[str], word: str, ask: Ask) -> Iterator[str]:
    """Complete names after a kind. After KIND/NAME, complete another KIND/."""
    if command.name == "run-state":
        yield from _with_prefix(_STATES, word)
    if "/" not in before[0]:
        yield from _with_prefix(_names(ask, before[0].split(",")[0]), word)
        return
    kinds = [f"{kind}/" for kind in _kinds(ask, command) if kind.startswith(word)]
    yield from kinds
    if kinds:
        yield NO_SPACE


def _with_prefix(choices: Sequence[str], start: str) -> Iterator[str]:
    return (word for word in choices if word.startswith(start))


def _fields(word: str) -> Iterator[str]:
    """Complete `sandbox.spec.te` to `sandbox.spec.template`; needs no daemon."""
    from controller.documents import json_schema
    from controller.kinds.registry import discover

    head, dot, start = word.rpartition(".")
    if not dot:
        yield from _with_prefix([known_kind.name.lower() for known_kind in discover()], start)
    else:
        kind = discover().by_word(head.split(".")[0])
        schema = json_schema.at(json_schema.document_schema(kind), tuple(head.split(".")[1:])) if kind else None
        yield from (
            f"{head}.{field}" for field in (json_schema.fields(schema) if schema else ()) if field.startswith(start)
        )
    yield NO_SPACE


def _kinds(ask: Ask, command: click.Command) -> list[str]:
    """Return the kinds that the command accepts."""
    resources = (ask("") or {}).get("resources", ())
    verb = "delete" if command.name == "delete" else "update"
    return [
        str(resource["name"])
        for resource in resources
        if command.name in _READING or verb in resource.get("verbs", (verb,))
    ]


def _plural(ask: Ask, word: str) -> tuple[str, bool]:
    for resource in (ask("") or {}).get("resources", ()):
        if word.lower() in (resource["name"], resource["singularName"], *resource["shortNames"]):
            return str(resource["name"]), bool(resource["namespaced"])
    return "", False


def _names(ask: Ask, word: str) -> list[str]:
    plural, namespaced = _plural(ask, word)
    if not plural:
        return []
    place = f"namespaces/{{namespace}}/{plural}" if namespaced else plural
    return [str(entry["metadata"]["name"]) for entry in (ask(place) or {}).get("items", ())]


def _namespaces(ask: Ask) -> list[str]:
    sandboxes = (ask("sandboxes") or {}).get("items", ())
    return sorted({"default", *(str(sandbox["metadata"]["namespace"]) for sandbox in sandboxes)})


def _asker(preceding: Sequence[str], server: str | None, context: str | None) -> Ask:
    """Return a function that asks the daemon and namespace given on the command line."""
    from controller.cli.options import DEFAULT_NAMESPACE
    from paddock._client.errors import ClientError
    from paddock._connect import configured_namespace

    address = _value(preceding, "--server") or server or None
    context = _value(preceding, "--context") or context
    try:
        place = _value(preceding, "-n", "--namespace") or configured_namespace(address, context) or DEFAULT_NAMESPACE
    except ClientError:
        place = DEFAULT_NAMESPACE

    def ask(path: str) -> Any:
        from urllib.parse import quote

        return _get(address, context, path.replace("{namespace}", quote(place, safe="")))

    return ask


def _value(preceding: Sequence[str], *options: str) -> str:
    for at, word in enumerate(preceding):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else preceding[at + 1] if at + 1 < len(preceding) else ""
    return ""


def _get(address: str | None, context: str | None, path: str) -> Any:
    """Return the JSON of one short request; None on any error."""
    import httpx

    from paddock._client.connection import PREFIX
    from paddock._client.credentials import authorization, trusted
    from paddock._client.errors import ClientError
    from paddock._client.server import locate

    try:
        server = locate(address, context=context)
        transport = httpx.HTTPTransport(uds=server.socket, verify=False) if server.socket else None
        with httpx.Client(
            base_url=server.url,
            transport=transport,
            timeout=_TIMEOUT_SECONDS,
            headers=authorization(server),
            trust_env=False,
            verify=trusted(server) if server.url.startswith("https") else False,  # certificates are only loaded for TLS
        ) as client:
            answer = client.get(f"{PREFIX}/{path}" if path else PREFIX)
            return answer.json() if answer.is_success else None
    except (ClientError, httpx.HTTPError, OSError, ValueError):
        return None
