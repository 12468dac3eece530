"""The sandbox's main process: the user's command as its child, and the server beside it."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys

from . import VERSION, linux
from .direct import Direct
from .execs import Execs
from .execute import Execute
from .files import Workspace
from .http import Request
from .loop import Loop, log
from .peers import CallerPolicy
from .protocol import Exchange, Protocol, dumps
from .server import Server, announce
from .settings import Settings, SettingsError, child_environment, initial_environment, parse
from .supervisor import reset_signals
from .tools import Tools
from .watch import Changes, Subscriptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contexts import Contexts
    from .folder_watch import FolderWatches

_PASSED_ON = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM),
)


class Agent:
    """One agent: what it serves, and the user's command."""

    def __init__(self, settings: Settings, command: list[str], own: dict[bytes, bytes]) -> None:
        """`own` is the sandbox's environment."""
        environment = child_environment(settings, own)
        self._settings = settings
        self._command = command
        self._environment = environment
        self._child = 0
        self._exit_code = 0
        self.loop = Loop()
        self._callers = CallerPolicy(settings.callers)
        workspace = Workspace(settings.root)
        execs = Execs(self.loop, settings.max_execs, environment)
        tools = Tools(settings, self.loop, workspace, execs, Changes(self.loop, workspace))
        self._tools = tools
        self._direct = Direct(self.loop, settings.max_execs, own)
        self._own = own
        self._contexts: Contexts | None = None
        self._watches: FolderWatches | None = None
        self._protocol = Protocol(tools, workspace, Subscriptions(self.loop, workspace))

    def run(self) -> int:
        self.loop.on_signals(
            {signal.SIGCHLD: self._reap} | {nr: lambda nr=nr: self._signalled(nr) for nr in _PASSED_ON}  # type: ignore[misc]
        )
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        server = Server(
            self.loop, (self._settings.address, self._settings.port), self._settings.max_connections, self._callers
        )
        server.route("POST", "/mcp", self._protocol.post)
        server.route("GET", "/mcp", self._protocol.get)
        server.route("DELETE", "/mcp", self._protocol.delete)
        server.route("POST", "/mcp/execute", Execute(self._tools).post)
        server.route("POST", "/exec", self._direct.post)
        server.route("POST", "/exec/kill", self._direct.kill)
        server.route("POST", "/exec/join", self._direct.join)
        server.route("GET", "/exec", lambda _, exchange: self._direct.orphans(exchange))
        server.route("GET", "/healthz", self._health)
        server.route("POST", "/watch", lambda request, exchange: self._watching().post(request.body, exchange))
        server.route("GET", "/contexts", lambda _, exchange: self._code().handle("/list", b"", exchange))
        for path in ("", "/execute", "/complete", "/interrupt", "/restart", "/fork", "/delete"):
            handle = lambda request, exchange, path=path: self._code().handle(path, request.body, exchange)  # noqa: E731
            server.route("POST", f"/contexts{path}", handle)
        if self._command:
            problem = self._start()
            if problem:
                log(problem)
                return self._exit_code
        if self._settings.port == 0:
            announce(server)
        if self._settings.contexts:
            self._code().warm(self._settings.contexts)
        gc.collect()
        gc.freeze()  # forked supervisors share these pages as long as nobody writes to them
        self.loop.run()
        server.close()
        return self._exit_code

    def _code(self) -> Contexts:
        """Return the code contexts. Their module is loaded with the first: at rest it would cost memory."""
        if self._contexts is None:
            from .contexts import Contexts

            self._contexts = Contexts(self.loop, self._settings.root, self._own)
        return self._contexts

    def _watching(self) -> FolderWatches:
        """Return the watched folders. Their module is loaded with the first."""
        if self._watches is None:
            from .folder_watch import FolderWatches

            self._watches = FolderWatches(self.loop)
        return self._watches

    def _health(self, _request: Request, exchange: Exchange) -> None:
        health = {
            "status": "ok",
            "version": VERSION,
            "callers": self._callers.status,
            "git": self._settings.git,
            "contexts": 1,
        }
        exchange.reply(200, dumps(health))

    def _start(self) -> str:
        """Start the user's command; return what is wrong if that fails."""
        read, write = os.pipe2(os.O_CLOEXEC)
        self._child = os.fork()
        if self._child == 0:
            try:
                reset_signals()
                os.execvpe(  # noqa: S606 - that is the task
                    os.fsencode(self._command[0]), [os.fsencode(each) for each in self._command], self._environment
                )
            except OSError as error:
                os.write(write, b"%d" % (error.errno or 0))
            finally:
                os._exit(127)
        os.close(write)
        reason = os.read(read, 16)
        os.close(read)
        if not reason:
            return ""
        os.waitpid(self._child, 0)
        self._exit_code = 127 if int(reason) == errno.ENOENT else 126
        return f"{self._command[0]}: {os.strerror(int(reason)).lower()}; correct the sandbox's command"

    def _signalled(self, number: int) -> None:
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)
        elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            self.loop.stop()

    def _reap(self) -> None:
        """Reap supervisors and, as process 1, every orphan; end with the user's command."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                    self._exit_code = 128 + ended_by if ended_by else os.WEXITSTATUS(status)
                    self.loop.stop()


def main(arguments: list[str]) -> int:
    try:
        environment = initial_environment()
        settings, command = parse(arguments, environment)
    except SettingsError as error:
        for line in str(error).splitlines():
            log(line)
        return 2
    linux.refuse_tracing()  # after the environment was read: its file is root's from now on
    os.environ.clear()  # a setting or secret must not reach a child by another way than `environment`
    for name in ("PATH",):
        if name.encode() in environment:
            os.environ[name] = os.fsdecode(environment[name.encode()])
    sys.dont_write_bytecode = True
    try:
        return Agent(settings, command, environment).run()
    except OSError as error:
        place = f"{settings.address}:{settings.port}"
        log(f"{place}: {os.strerror(error.errno or 0).lower()}; free the port, or leave the agent out of the template")
        return 1
