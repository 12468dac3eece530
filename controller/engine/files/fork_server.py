"""Server that forks the worker of each file operation: that takes a millisecond or two, a new interpreter fifty.

It has one thread, opens nothing and reads nothing of any sandbox. Each message on its socket (descriptor 0) brings the
descriptors of one operation: the sandbox's root and first process, the worker's three streams, and a pipe for its exit
code. The answer is the worker's pid and a handle of it. A worker keeps its own descriptors only. The end of the socket
ends the server.
"""

import fcntl
import os
import select
import signal
import socket
import struct
import sys

STREAMS = 3
DESCRIPTORS = 6
NUMBER = struct.Struct("=i")
_ABOVE = 100

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))
    from controller.engine.files import operations  # here, once, for the workers; the daemon itself needs none

    assert operations.OPERATIONS
from controller.engine.files import worker  # noqa: E402


def serve(control: socket.socket) -> None:
    """Fork workers until the socket ends."""
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the daemon's terminal
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(woken, select.POLLIN)
    exits: dict[int, int] = {}
    while True:
        for ready, _ in poll.poll():
            if ready == woken:
                os.read(woken, 4096)
                _reap(exits)
            elif not _fork(control, exits):
                return


def _fork(control: socket.socket, exits: dict[int, int]) -> bool:
    """Fork one worker; False at the end of the socket."""
    message, descriptors, _, _ = socket.recv_fds(control, 1, DESCRIPTORS)
    if not message or len(descriptors) != DESCRIPTORS:
        return False
    try:
        pid = os.fork()
    except OSError as error:
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(NUMBER.pack(-(error.errno or 1)))
        return True
    if pid == 0:
        _work(descriptors[:-1])
    exits[pid] = descriptors[-1]
    for descriptor in descriptors[:-1]:
        os.close(descriptor)
    handle = os.pidfd_open(pid)
    socket.send_fds(control, [NUMBER.pack(pid)], [handle])
    os.close(handle)
    return True


def _work(descriptors: list[int]) -> None:
    """Be the worker of the operation with these descriptors; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        root, process, *streams = (fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE) for descriptor in descriptors)
        for at, descriptor in enumerate((*streams, root, process)):
            os.dup2(descriptor, at)
        os.closerange(DESCRIPTORS - 1, os.sysconf("SC_OPEN_MAX"))
        sys.argv = ["worker", str(STREAMS), str(STREAMS + 1)]
        code = worker.main()
    except BaseException as error:  # its words go where a new interpreter's would
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _reap(exits: dict[int, int]) -> None:
    """Report the exit codes of the workers that have ended; a signal's as its negative number."""
    while exits:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        report = exits.pop(pid)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        os.write(report, NUMBER.pack(code))
        os.close(report)


if __name__ == "__main__":
    with socket.socket(fileno=0) as control:
        serve(control)
