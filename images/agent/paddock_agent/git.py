"""The git tool: listed operations with listed options, and nothing that makes git run another program."""

from __future__ import annotations

import re

from .replies import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from typing import Any


_COMMON = {"-q", "--quiet", "-v", "--verbose", "--no-color", "--dry-run"}
_DIFF = {
    *("-p", "--patch", "--stat", "--numstat", "--shortstat", "--name-only", "--name-status", "--cached", "--staged"),
    *("-w", "--ignore-all-space", "-b", "-U", "--unified", "--word-diff", "--summary", "-R", "-M", "--find-renames"),
    *("--no-renames", "--check", "--diff-filter", "--merge-base", "--raw", "-z", "--no-ext-diff", "--no-textconv"),
}
_LOG = {
    *("--oneline", "--graph", "--all", "-n", "--max-count", "--skip", "--since", "--until", "--author", "--grep"),
    *("--format", "--pretty", "--date", "--merges", "--no-merges", "--first-parent", "--reverse", "--follow"),
    *("--abbrev-commit", "--decorate", "--no-decorate", "-S", "-G", "-i", "--branches", "--tags", "--topo-order"),
}
_LOCAL: dict[str, set[str]] = {
    "add": {"-A", "--all", "-u", "--update", "-f", "--force", "-n", "-N", "--intent-to-add"},
    "blame": {"-L", "-w", "-l", "-s", "-e", "--date"},
    "branch": {
        *(
            "-a",
            "--all",
            "-d",
            "-D",
            "--delete",
            "-m",
            "-M",
            "--move",
            "-r",
            "--list",
            "--show-current",
            "-f",
            "--force",
        ),
        *("--contains", "--merged", "--no-merged", "--sort", "--format", "-vv", "-u", "--set-upstream-to"),
    },
    "checkout": {"-b", "-B", "-f", "--force", "--detach", "--orphan", "--ours", "--theirs", "-t", "--track"},
    "cherry-pick": {"-n", "--no-commit", "--abort", "--continue", "--skip", "-x", "-m"},
    "clean": {"-n", "-f", "--force", "-d", "-x", "-X", "-fd", "-fdx", "-e", "--exclude"},
    "commit": {
        *("-m", "--message", "-a", "--all", "-am", "--amend", "--no-edit", "--allow-empty", "--allow-empty-message"),
        *("--date", "-s", "--signoff", "--fixup", "--no-verify", "-n"),
    },
    "describe": {"--tags", "--always", "--dirty", "--abbrev", "--long", "--all"},
    "diff": _DIFF,
    "grep": {"-n", "-i", "-w", "-l", "-c", "-e", "-E", "-F", "-P", "-A", "-B", "-C", "--untracked", "-v", "-I"},
    "init": {"-b", "--initial-branch", "--bare"},
    "log": _LOG | _DIFF,
    "ls-files": {"-m", "-o", "-d", "-s", "-c", "-z", "--others", "--modified", "--exclude-standard", "--deleted"},
    "ls-tree": {"-r", "-t", "-d", "-l", "-z", "--name-only", "--full-tree"},
    "merge": {"--no-ff", "--ff-only", "--squash", "--abort", "--continue", "-m", "--no-edit", "--no-commit", "--ff"},
    "mv": {"-f", "-k", "-n"},
    "rebase": {"--abort", "--continue", "--skip", "--onto", "--autostash", "--no-autostash"},
    "reflog": {"-n", "--all", "--format", "--date"},
    "reset": {"--soft", "--mixed", "--hard", "--keep", "--merge", "-N"},
    "restore": {"-s", "--source", "-S", "--staged", "-W", "--worktree", "--ours", "--theirs"},
    "rev-list": {"--count", "--all", "-n", "--max-count", "--no-merges", "--reverse", "--objects"},
    "rev-parse": {
        *(
            "--abbrev-ref",
            "--short",
            "--show-toplevel",
            "--verify",
            "--is-inside-work-tree",
            "--git-dir",
            "--show-prefix",
        ),
        *("--symbolic-full-name",),
    },
    "revert": {"-n", "--no-commit", "--no-edit", "--abort", "--continue", "--skip", "-m"},
    "rm": {"-r", "-f", "--force", "--cached", "-n", "--ignore-unmatch"},
    "shortlog": {"-s", "-n", "-e", "-sn", "-sne", "--all", "--since", "--until"},
    "show": _LOG | _DIFF,
    "stash": {"-u", "--include-untracked", "-m", "--message", "-p", "-k", "--keep-index", "--index"},
    "status": {"-s", "--short", "-b", "--branch", "--porcelain", "-u", "--untracked-files", "--ignored", "-z"},
    "switch": {"-c", "-C", "--create", "-f", "--force", "--detach", "--orphan", "--discard-changes"},
    "tag": {"-a", "-m", "--message", "-d", "--delete", "-l", "--list", "-n", "-f", "--sort", "--contains"},
}
_REMOTE: dict[str, set[str]] = {
    "clone": {"--depth", "-b", "--branch", "--single-branch", "--no-tags", "--bare", "--filter", "--no-checkout"},
    "fetch": {"--all", "--depth", "--prune", "-p", "--tags", "--no-tags", "-t", "--unshallow", "--deepen", "-f"},
    "ls-remote": {"--heads", "--tags", "--refs", "-h", "-t", "--symref"},
    "pull": {"--rebase", "--no-rebase", "--ff-only", "--no-ff", "--ff", "--depth", "--prune", "--tags", "--autostash"},
    "push": {"-u", "--set-upstream", "--tags", "--force-with-lease", "-f", "--force", "--delete", "-d", "--all"},
    "remote": {"--prune", "--tags", "-t", "-f"},
}
_COUNT = re.compile(r"-\d{1,6}")  # as in `git log -5`
_WITH_VALUE = re.compile(r"-[nULCABmSG]\S+")  # a short option with its value in the same word
_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")  # <transport>::<address> runs git-remote-<transport>

_GUARDS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "core.askPass": "",
    "credential.interactive": "false",
    "diff.external": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "safe.directory": "*",  # the workspace may be a folder of the host's user
    "submodule.recurse": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
}


def operations(setting: str) -> list[str]:
    """Return the operations that `template.agent.git` allows."""
    return sorted([] if setting == "None" else _LOCAL if setting == "Local" else {**_LOCAL, **_REMOTE})


def command(setting: str, operation: str, arguments: list[str]) -> list[str]:
    """Return the whole command line; refuse what the setting or the lists do not have."""
    if setting == "None":
        raise ToolError("git is off in this sandbox: set `template.agent.git` to Local or Remote")
    if operation not in operations(setting):
        if operation in _REMOTE:
            raise ToolError(f"git {operation}: reaches other hosts; set `template.agent.git` to Remote")
        raise ToolError(f"git {operation}: is not on the list: {', '.join(operations(setting))}; use exec for others")
    allowed = _COMMON | {**_LOCAL, **_REMOTE}[operation]
    problems = []
    for argument in arguments:
        if argument == "--":
            break
        if argument.startswith("-") and not _allowed(argument, allowed):
            problems.append(
                f"git {operation}: option `{argument.partition('=')[0]}` is not allowed; use exec if you need it"
            )
        elif _HELPER.match(argument):
            problems.append(f"git {operation}: `{argument.partition('::')[0]}::` would run a program; use https or ssh")
    if problems:
        raise ToolError("\n".join(problems))
    guards = [word for name, value in _GUARDS.items() for word in ("-c", f"{name}={value}")]
    more = ["--no-ext-diff", "--no-textconv"] if operation in ("diff", "log", "show") else []
    return ["git", "--no-pager", *guards, operation, *more, *arguments]


def _allowed(argument: str, allowed: set[str]) -> bool:
    if argument == "-":
        return True
    if _COUNT.fullmatch(argument):
        return "-n" in allowed
    if argument.startswith("--"):
        return argument.partition("=")[0] in allowed
    return argument in allowed or bool(_WITH_VALUE.fullmatch(argument) and argument[:2] in allowed)


def environment(setting: str, author: Any) -> dict[str, str]:
    result = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_EDITOR": "true",
        "GIT_SEQUENCE_EDITOR": "true",
        "GIT_EXTERNAL_DIFF": "",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file" if setting == "Remote" else "file",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
    }
    if author:
        name, _, rest = author.partition("<")
        email = rest.rstrip("> ")
        if not name.strip() or "@" not in email:
            raise ToolError("author: must read `Name <name@example.org>`")
        for role in ("AUTHOR", "COMMITTER"):
            result[f"GIT_{role}_NAME"], result[f"GIT_{role}_EMAIL"] = name.strip(), email
    return result
