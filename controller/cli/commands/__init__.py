"""Commands, one module each, in packages by what they are about; `COMMANDS` lists them."""

import importlib
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """A command as `paddock --help` shows it, and where its module is."""

    package: str
    help: str


# In the order of the help. The code is the function `NAME_` of the module NAME.
COMMANDS = {
    "apply": Entry("objects", "Create or change objects from spec files or a Compose file."),
    "compose": Entry("compose", "Run a Compose file: up, down, ps, logs, exec ..."),
    "up": Entry("compose", "Run the Compose file of this folder."),
    "down": Entry("compose", "Delete what the Compose file of this folder runs; volumes stay."),
    "diff": Entry("objects", "Show what applying spec files would change."),
    "get": Entry("objects", "Show objects, as a table, JSON or YAML."),
    "describe": Entry("objects", "Show an object with its conditions and events."),
    "delete": Entry("objects", "Delete objects, and wait until they are gone."),
    "create": Entry("objects", "Create objects from files; those that exist are refused."),
    "replace": Entry("objects", "Replace existing objects by those in files."),
    "restart": Entry("sandbox", "Stop sandboxes and start them again."),
    "rollout": Entry("sandbox", "Restart sandboxes, or show their progress, in kubectl's words."),
    "import": Entry("objects", "Translate manifests of others into specs."),
    "edit": Entry("objects", "Change an object in your editor."),
    "patch": Entry("objects", "Change parts of an object."),
    "set": Entry("objects", "Set an image, limits, a command, variables or the run state."),
    "scale": Entry("objects", "Set how many members a pool keeps ready."),
    "label": Entry("objects", "Set or remove labels."),
    "annotate": Entry("objects", "Set or remove annotations."),
    "wait": Entry("objects", "Wait for a condition, or until an object is gone."),
    "events": Entry("objects", "Show events, newest last."),
    "top": Entry("sandbox", "Show resource use of sandboxes: CPU, memory, network, disk, processes."),
    "why": Entry("sandbox", "Explain the state of a sandbox and what it waits for."),
    "inspect": Entry("sandbox", "Show the container of a sandbox as the engine reports it."),
    "network": Entry("sandbox", "Show if a sandbox reaches a host, and which rule decides."),
    "attest": Entry("sandbox", "Verify a running sandbox against its security level."),
    "logs": Entry("inside", "Show the log of a sandbox."),
    "run": Entry("inside", "Run a command in a new sandbox, and remove it afterwards."),
    "exec": Entry("inside", "Run a command in a sandbox."),
    "sandbox": Entry("sandbox", "The commands for sandboxes, below their noun: list, logs, exec, shell, cp ..."),
    "workflow": Entry("agents", "Run workflows, follow them, and fetch their artifacts."),
    "plugin": Entry("agents", "Install, configure, list and remove plugins."),
    "project": Entry("agents", "Open, close and configure projects, which are sandboxes."),
    "execs": Entry("inside", "List commands started with `exec --detach`, or kill one."),
    "shell": Entry("inside", "Open a shell in a sandbox."),
    "repl": Entry("inside", "Type code into an interpreter of a sandbox that keeps its variables."),
    "ssh": Entry("inside", "Work in a sandbox by SSH: shells, files, ports, IDEs."),
    "cp": Entry("inside", "Copy files and folders into or out of a sandbox."),
    "port-forward": Entry("inside", "Forward local ports to a sandbox."),
    "open": Entry("inside", "Open a port of a sandbox in a browser, by a link that may be passed on."),
    "code": Entry("inside", "Open an editor in a sandbox: VS Code, Cursor, Zed or JetBrains."),
    "snapshot": Entry("sandbox", "Take, list, delete, export and import snapshots of sandboxes."),
    "fork": Entry("sandbox", "Create sandboxes with the files that a sandbox has now."),
    "rollback": Entry("sandbox", "Give a sandbox the files of a snapshot again."),
    "image": Entry("host", "List, pull, build, push and delete images of the host."),
    "panel": Entry("client", "Open the web panel in your browser."),
    "explain": Entry("objects", "Document the fields of a kind."),
    "api-resources": Entry("objects", "Show the kinds that the daemon serves."),
    "completion": Entry("client", "Print the completion script for your shell."),
    "models": Entry("agents", "List models that sandboxes may use, and if they are ready."),
    "e2b": Entry("agents", "Use this daemon by E2B's own clients."),
    "mcp": Entry("agents", "Serve Paddock's tools to an MCP client, and configure clients."),
    "config": Entry("client", "Show and change contexts: named daemons and namespaces; add model providers."),
    "auth": Entry("access", "Show your identity and permissions."),
    "audit": Entry("access", "Show the audit log, and verify its hash chain."),
    "backup": Entry("host", "Write a backup of the store to a file, while the daemon runs."),
    "restore": Entry("host", "Replace this host's store with a backup, while no daemon runs."),
    "host": Entry("host", "List hosts, cordon one and open it again, and remove one that is gone."),
    "doctor": Entry("host", "Check this host and recommend fixes."),
    "secret": Entry("access", "Set, list and delete secrets of this host."),
    "token": Entry("access", "Create, list and revoke bearer tokens."),
    "serve": Entry("host", "Run the daemon."),
    "version": Entry("client", "Show the versions of this command and of the daemon."),
}


def load(name: str) -> click.Command:
    """Return the command of this name; its module is imported now."""
    module = name.replace("-", "_")
    command: click.Command = getattr(
        importlib.import_module(f"{__name__}.{COMMANDS[name].package}.{module}"), f"{module}_"
    )
    return command
