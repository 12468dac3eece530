"""The tools by name: their schemas, and what runs them."""

from __future__ import annotations

import signal
import time

from . import files, git, schema
from .execs import Exec, Execs
from .files import Workspace
from .loop import Loop, Timer, report
from .replies import STREAM_LIMIT, Reply, ToolError, failure, plain
from .settings import Settings
from .watch import Changes

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable
    from typing import Any

    Done = Callable[[Reply], None]
    Schema = dict[str, Any]
    Handler = Callable[[dict[str, Any], "Call"], Reply | files.Work | None]


_MAX_SECONDS = 86_400
_SLICE_SECONDS = 0.01  # of long work, then other callers have their turn


def _object(properties: Schema, *required: str) -> Schema:
    result: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        result["required"] = list(required)
    return result


def _output(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _number(description: str, kind: str = "number", **more: Any) -> Schema:
    return {"type": kind, "description": description, **more}


def _flag(description: str, default: bool = False) -> Schema:
    return {"type": "boolean", "description": description, "default": default}


_WORDS: Schema = {"type": "array", "items": {"type": "string"}}
_ARGUMENTS: Schema = {"anyOf": [_WORDS, {"type": "string"}]}  # a string is split as a shell splits it


def _words(arguments: dict[str, Any]) -> list[str]:
    """Return the words of `args`. Raises ToolError."""
    given: str | list[str] = arguments.get("args", [])
    if not isinstance(given, str):
        return given
    import shlex  # few callers need its memory

    try:
        return shlex.split(given)
    except ValueError as error:
        raise ToolError(f"args: {str(error).lower()}; close it, or send a list") from error


_PATH = _text("Path in the workspace, relative to its root or absolute below it")
_RUN: Schema = {
    "timeout_s": _number(
        "Seconds until everything that was started is killed", minimum=0.05, maximum=_MAX_SECONDS, default=300
    ),
    "idle_timeout_s": _number("The same after so many seconds without output", minimum=0.05, maximum=_MAX_SECONDS),
    "env": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Environment variables on top of the sandbox's own",
    },
    "cwd": _text("Working folder in the workspace", default="."),
    "background": _flag("Return the exec's id at once; ask for its output with exec.get"),
}
_EXEC_RESULT = _output(
    {
        "id": {"type": "string"},
        "running": {"type": "boolean"},
        "exitCode": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "durationMs": {"type": "integer"},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "stdoutBytes": {"type": "integer"},
        "stderrBytes": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "endedBy": {"type": "string"},
        "signal": {"type": "string"},
        "error": {"type": "string"},
    }
)
_FACTS: Schema = {
    "path": {"type": "string"},
    "type": {"type": "string"},
    "size": {"type": "integer"},
    "mode": {"type": "string"},
    "modified": {"type": "number"},
}
_ENCODING = _text("How content is written", enum=["text", "base64"], default="text")


class Call:
    """One running call; `cancel` ends what it has under way."""

    __slots__ = ("cancel", "done", "finished")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.finished = False
        self.cancel: Callable[[], None] = lambda: None

    def finish(self, reply: Reply) -> None:
        if not self.finished:
            self.finished = True
            self.done(reply)

    def abandon(self) -> None:
        """End the call without an answer: its caller has gone."""
        if not self.finished:
            self.finished = True
            self.cancel()


class Tool:
    def __init__(
        self, name: str, description: str, arguments: Schema, result: Schema, handler: Handler, hints: str
    ) -> None:
        self.name = name
        self.input = arguments
        self.handler = handler
        self.definition: Schema = {
            "name": name,
            "description": description,
            "inputSchema": arguments,
            "outputSchema": result,
            "annotations": {
                "readOnlyHint": "r" in hints,
                "destructiveHint": "d" in hints,
                "idempotentHint": "i" in hints,
                "openWorldHint": "o" in hints,
            },
        }


class Tools:
    """All tools of one agent."""

    def __init__(self, settings: Settings, loop: Loop, workspace: Workspace, execs: Execs, changes: Changes) -> None:
        self._settings = settings
        self._loop = loop
        self._workspace = workspace
        self._execs = execs
        self._changes = changes
        self.by_name = {tool.name: tool for tool in [*self._exec_tools(), *self._file_tools(), *self._project_tools()]}

    def call(self, name: str, arguments: Any, done: Done) -> Call:
        """Start a tool; DONE gets its answer, at once or later."""
        call = Call(done)
        tool = self.by_name.get(name)
        if tool is None:
            call.finish(failure(f"{name}: no such tool; there are {', '.join(self.by_name)}"))
            return call
        try:
            reply = tool.handler(schema.check(tool.input, arguments), call)
        except ToolError as error:
            reply = failure(str(error))
        if isinstance(reply, Reply):
            call.finish(reply)
        elif reply is not None:
            call.cancel = reply.close
            self._work(reply, call)
        return call

    def _work(self, work: files.Work, call: Call) -> None:
        """Go on with long work for a slice of time; a call whose caller has gone ends where it is."""
        if call.finished:
            return
        end = time.monotonic() + _SLICE_SECONDS
        try:
            next(work)
            while time.monotonic() < end:
                next(work)
        except StopIteration as done:
            call.finish(done.value)
        except ToolError as error:
            call.finish(failure(str(error)))
        except Exception as error:
            report(error)
            call.finish(failure("internal error of the agent"))
        else:
            self._loop.after(0, lambda: self._work(work, call))

    def _exec_tools(self) -> list[Tool]:
        name = _text("Id of an exec, as exec-1")
        run = {
            "command": {
                "anyOf": [_WORDS, {"type": "string"}],
                "description": "Program and arguments; or a program with args; or, without args, a line for /bin/sh",
            },
            "args": {**_ARGUMENTS, "description": "Arguments, if command is a text"},
            **_RUN,
            "stdin": _text("Text for the standard input; without it, it is empty", nul=True),
            "stdin_base64": _text("The same as base64"),
        }
        listed = {"type": "array", "items": {"type": "object"}}
        return [
            Tool(
                "exec",
                "Run a command in the sandbox and return its output.",
                _object(run, "command"),
                _EXEC_RESULT,
                self._exec,
                "do",
            ),
            Tool(
                "exec.get",
                "Return the state and output of an exec in the background.",
                _object(
                    {"id": name, "wait_s": _number("Seconds to wait for its end", minimum=0, maximum=600, default=0)},
                    "id",
                ),
                _EXEC_RESULT,
                self._exec_get,
                "ri",
            ),
            Tool(
                "exec.kill",
                "Send a signal to an exec; KILL ends every process that it started.",
                _object(
                    {
                        "id": name,
                        "signal": _text(
                            "Signal", enum=["KILL", "TERM", "INT", "HUP", "QUIT", "USR1", "USR2"], default="KILL"
                        ),
                    },
                    "id",
                ),
                _output({"id": {"type": "string"}, "signal": {"type": "string"}, "running": {"type": "boolean"}}),
                self._exec_kill,
                "di",
            ),
            Tool(
                "exec.list",
                "List the execs that run, and those in the background that have ended.",
                _object({}),
                _output({"execs": listed}),
                lambda _arguments, _call: self._exec_list(),
                "ri",
            ),
        ]

    def _file_tools(self) -> list[Tool]:
        sha = _flag("Add the content's SHA-256")
        written = _output({**_FACTS, "sha256": {"type": "string"}, "created": {"type": "boolean"}})
        read = {
            **_FACTS,
            "sha256": {"type": "string"},
            "content": {"type": "string"},
            "encoding": {"type": "string"},
            "offset": {"type": "integer"},
            "nextOffset": {"type": "integer"},
            "truncated": {"type": "boolean"},
        }

        def tool(name: str, description: str, arguments: Schema, result: Schema, function: Any, hints: str) -> Tool:
            return Tool(
                name, description, arguments, result, lambda given, _call: function(self._workspace, given), hints
            )

        return [
            tool(
                "file.read",
                "Read a file or a part of it.",
                _object(
                    {
                        "path": _PATH,
                        "offset": _number("Byte to begin at", "integer", minimum=0, maximum=2**62, default=0),
                        "limit": _number(
                            "Bytes at most", "integer", minimum=1, maximum=STREAM_LIMIT, default=STREAM_LIMIT
                        ),
                        "encoding": _text("auto: text if it is UTF-8", enum=["auto", "text", "base64"], default="auto"),
                    },
                    "path",
                ),
                _output(read),
                files.read,
                "ri",
            ),
            tool(
                "file.write",
                "Create a file or replace it as a whole (atomically).",
                _object(
                    {
                        "path": _PATH,
                        "content": _text("The whole content", nul=True),
                        "encoding": _ENCODING,
                        "if_sha256": _text(
                            "Write only if the present content has this SHA-256; empty: only if there is no file"
                        ),
                        "mode": _text(
                            "Permissions, octal",
                            enum=["0600", "0640", "0644", "0664", "0666", "0700", "0750", "0755", "0775", "0777"],
                        ),
                        "parents": _flag("Create missing folders", True),
                    },
                    *("path", "content"),
                ),
                written,
                files.write,
                "di",
            ),
            tool(
                "file.list",
                "List a folder.",
                _object(
                    {
                        "path": {**_PATH, "default": "."},
                        "recursive": _flag("With everything below it"),
                        "limit": _number(
                            "Entries at most", "integer", minimum=1, maximum=files.MAX_ENTRIES, default=1000
                        ),
                        "after": _text("Begin after this path: the answer's `next`"),
                    }
                ),
                _output(
                    {
                        "path": {"type": "string"},
                        "entries": {
                            "type": "array",
                            "items": {"type": "object", "properties": {**_FACTS, "notListed": {"type": "string"}}},
                        },
                        "truncated": {"type": "boolean"},
                        "next": {"type": "string"},
                    }
                ),
                files.listing,
                "ri",
            ),
            tool(
                "file.stat",
                "Return type, size, mode and time of a path; a symbolic link is not followed.",
                _object({"path": _PATH, "sha256": sha}, "path"),
                _output(
                    {
                        **_FACTS,
                        "uid": {"type": "integer"},
                        "gid": {"type": "integer"},
                        "target": {"type": "string"},
                        "sha256": {"type": "string"},
                    }
                ),
                files.describe,
                "ri",
            ),
            tool(
                "file.remove",
                "Remove a file or a folder.",
                _object({"path": _PATH, "recursive": _flag("A folder with everything below it")}, "path"),
                _output({"path": {"type": "string"}, "removed": {"type": "integer"}}),
                files.remove,
                "di",
            ),
            tool(
                "file.move",
                "Rename or move a file or folder.",
                _object(
                    {
                        "from": _PATH,
                        "to": _PATH,
                        "overwrite": _flag("Replace a file that is there"),
                        "parents": _flag("Create missing folders", True),
                    },
                    *("from", "to"),
                ),
                _output({"from": {"type": "string"}, "to": {"type": "string"}}),
                files.move,
                "d",
            ),
            Tool(
                "file.changes",
                "Return what was created, modified or removed since a cursor. Without one: a cursor for the next call. "
                ".git, node_modules, .venv and __pycache__ are left out.",
                _object(
                    {
                        "since": _text("Cursor of the answer before", default=""),
                        "path": {**_PATH, "default": "."},
                        "wait_s": _number("Seconds to wait for a change", minimum=0, maximum=600, default=0),
                    }
                ),
                _output(
                    {
                        "cursor": {"type": "string"},
                        "changes": {"type": "array", "items": {"type": "object"}},
                        "reset": {"type": "boolean"},
                    }
                ),
                self._file_changes,
                "ri",
            ),
        ]

    def _project_tools(self) -> list[Tool]:
        more = {"args": {**_ARGUMENTS, "description": "More arguments for the command"}, **_RUN}
        arguments = {
            "operation": _text(
                "Operation, as status; allowed are: " + (", ".join(git.operations(self._settings.git)) or "none")
            ),
            "args": {**_ARGUMENTS, "description": "Its arguments; options come from a list"},
            "author": _text("Author of a commit: Name <name@example.org>"),
            **{name: each for name, each in _RUN.items() if name in ("timeout_s", "cwd")},
        }
        return [
            Tool(
                "build",
                "Run the sandbox's build command.",
                _object(more),
                _EXEC_RESULT,
                self._configured("build"),
                "do",
            ),
            Tool(
                "test", "Run the sandbox's test command.", _object(more), _EXEC_RESULT, self._configured("test"), "do"
            ),
            Tool("git", "Run a git operation.", _object(arguments, "operation"), _EXEC_RESULT, self._git, "do"),
        ]

    def _exec(self, arguments: dict[str, Any], call: Call) -> Reply | None:
        command = arguments["command"]
        if isinstance(command, str):
            if not command.strip():
                raise ToolError("command: is empty")
            words = [command, *_words(arguments)] if "args" in arguments else ["/bin/sh", "-c", command]
        else:
            words = command + _words(arguments)
        if not words[0]:
            raise ToolError("command: the program's name is empty")
        stdin = arguments.get("stdin", "")
        if "stdin_base64" in arguments:
            if stdin:
                raise ToolError("stdin: give it as stdin or as stdin_base64, not both")
            return self._run(words, arguments, call, files.decode_content(arguments["stdin_base64"], "base64"))
        return self._run(words, arguments, call, files.decode_content(stdin, "text"))

    def _configured(self, what: str) -> Handler:
        def handle(arguments: dict[str, Any], call: Call) -> Reply | None:
            command: list[str] = getattr(self._settings, what)
            if not command:
                raise ToolError(f"this sandbox has no {what} command: set `template.agent.{what}`")
            return self._run(command + _words(arguments), arguments, call)

        return handle

    def _git(self, arguments: dict[str, Any], call: Call) -> Reply | None:
        setting = self._settings.git
        words = git.command(setting, arguments["operation"], _words(arguments))
        environment = git.environment(setting, arguments.get("author"))
        return self._run(words, {**arguments, "env": environment}, call)

    def _run(self, words: list[str], arguments: dict[str, Any], call: Call, stdin: bytes = b"") -> Reply | None:
        run = self._execs.start(
            words,
            self._workspace.folder(arguments["cwd"]),
            environment=arguments.get("env", {}),
            stdin=stdin,
            timeout=arguments["timeout_s"],
            idle=arguments.get("idle_timeout_s", 0),
            background=arguments.get("background", False),
        )
        if run.background:
            return Reply(lambda _: (run.facts(), f"{run.id} is running; ask with exec.get"))
        run.waiting.append(lambda: call.finish(run.reply()))
        call.cancel = lambda: self._execs.cancel(run)
        return None

    def _exec_get(self, arguments: dict[str, Any], call: Call) -> Reply | None:
        run = self._execs.get(arguments["id"])
        if not run.running or not arguments["wait_s"]:
            return run.reply()
        self._wait(run, arguments["wait_s"], call)
        return None

    def _wait(self, run: Exec, seconds: float, call: Call) -> None:
        def end() -> None:
            leave()
            call.finish(run.reply())

        timer: Timer = self._loop.after(seconds, end)

        def leave() -> None:
            self._loop.cancel(timer)
            if end in run.waiting:
                run.waiting.remove(end)

        run.waiting.append(end)
        call.cancel = leave

    def _exec_kill(self, arguments: dict[str, Any], call: Call) -> Reply | None:
        run, name = self._execs.get(arguments["id"]), arguments["signal"]
        if not run.running:
            raise ToolError(f"{run.id}: has ended already")
        self._execs.kill(run, signal.Signals[f"SIG{name}"])

        def reply() -> Reply:
            return plain({"id": run.id, "signal": name, "running": run.running}, f"{run.id}: {name} sent")

        if name != "KILL":
            return reply()
        run.waiting.append(lambda: call.finish(reply()))
        return None

    def _exec_list(self) -> Reply:
        listed = [{**run.facts(), "command": " ".join(run.words)[:200]} for run in self._execs.all()]
        lines = [
            f"{each['id']} {'running' if each['running'] else each['exitCode']} {each['command']}" for each in listed
        ]
        return plain({"execs": listed}, "\n".join(lines) or "no execs")

    def _file_changes(self, arguments: dict[str, Any], call: Call) -> Reply | None:
        cursor, path = arguments["since"], self._workspace.relative(arguments["path"])
        reply, found = self._changes.since(cursor, path)
        if found or not cursor or not arguments["wait_s"]:
            return reply

        def look() -> bool:
            try:
                reply, found = self._changes.since(cursor, path)
            except ToolError as error:
                reply, found = failure(str(error)), True
            if found:
                self._loop.cancel(timer)
                call.finish(reply)
            return found

        def end() -> None:
            self._changes.leave(call)
            if not look():
                call.finish(reply)

        def leave() -> None:
            self._loop.cancel(timer)
            self._changes.leave(call)

        timer = self._loop.after(arguments["wait_s"], end)
        self._changes.wait(call, look)
        call.cancel = leave
        return None
