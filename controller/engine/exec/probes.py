"""Probes of a sandbox: a command through the engine, or a connection in the sandbox's own network.

Answers are hostile: they are read within limits of size and time, and no redirect is followed. Only the sandbox's own
behaviour is a failure; errors of Paddock are `unknown`.
"""

import contextlib
import socket
import ssl
import time
from pathlib import Path

from controller.engine.exec.command import TIMED_OUT
from controller.engine.kernel.cgroups import PROC
from controller.engine.kernel.network_namespace import NetworkUnreachable, socket_in
from controller.kinds.runtime.probe import ExecAction, HttpGetAction, ProbeResult, Watch
from controller.ports import StreamError, Streams

_OUTPUT_BYTES = 64 << 10
_STATUS_LINE_BYTES = 1024
_MESSAGE_BYTES = 200
_PASSED = ProbeResult("success")


class DockerProbes:
    """ports.Probes for the containers of one engine on this host."""

    def __init__(self, streams: Streams, proc: Path = PROC) -> None:
        self._streams = streams
        self._proc = proc

    def probe(self, watch: Watch) -> ProbeResult:
        desired = watch.probe
        if desired.exec is not None:
            return self._exec(watch, desired.exec)
        deadline = time.monotonic() + desired.timeout_seconds
        try:
            with socket_in(watch.pid, watch.run[0], self._proc) as sock:
                return _network(sock, watch, deadline)
        except NetworkUnreachable as error:
            return ProbeResult("unknown", str(error))

    def _exec(self, watch: Watch, action: ExecAction) -> ProbeResult:
        timeout, started = watch.probe.timeout_seconds, time.monotonic()
        try:
            # Closing the stream kills a command that still runs.
            with contextlib.closing(
                self._streams.exec(watch.run[0], action.command, timeout_seconds=timeout)
            ) as stream:
                output, size = b"", 0
                for chunk in stream:
                    if chunk.stream == "exit":
                        return _exit(int(chunk.data), output, timeout, time.monotonic() - started)
                    output, size = output + chunk.data[: _MESSAGE_BYTES - len(output)], size + len(chunk.data)
                    if size > _OUTPUT_BYTES:
                        return ProbeResult("failure", f"the command wrote more than {_OUTPUT_BYTES >> 10} KiB")
        except StreamError as error:
            return ProbeResult("unknown", str(error))
        return ProbeResult("unknown", "the command's exit code is unknown")


def _exit(code: int, output: bytes, timeout: int, took: float) -> ProbeResult:
    if code == 0:
        return _PASSED
    if code == TIMED_OUT and took >= timeout:
        return ProbeResult("failure", f"no answer within {timeout} s; the command was killed")
    message = _plain(output)
    return ProbeResult("failure", f"exit code {code}" + (f": {message}" if message else ""))


def _network(sock: socket.socket, watch: Watch, deadline: float) -> ProbeResult:
    desired = watch.probe
    port = desired.http_get.port if desired.http_get else desired.tcp_socket.port if desired.tcp_socket else 0
    try:
        _until(sock, deadline)
        sock.connect(("127.0.0.1", port))
        return _http(sock, desired.http_get, deadline) if desired.http_get else _PASSED
    except TimeoutError:
        return ProbeResult("failure", f"port {port}: no answer within {desired.timeout_seconds} s")
    except OSError as error:
        return ProbeResult("failure", f"port {port}: {(error.strerror or str(error)).lower()}")


def _http(sock: socket.socket, action: HttpGetAction, deadline: float) -> ProbeResult:
    """Send a request, and read the status line only. Raises OSError."""
    host = action.host or f"localhost:{action.port}"
    request = f"GET {action.path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: paddock-probe\r\nAccept: */*\r\n"
    with _tls(sock, deadline) if action.scheme == "HTTPS" else contextlib.nullcontext(sock) as way:
        _until(way, deadline)
        way.sendall(f"{request}Connection: close\r\n\r\n".encode("ascii"))
        line = b""
        while b"\n" not in line and len(line) < _STATUS_LINE_BYTES:
            _until(way, deadline)
            piece = way.recv(_STATUS_LINE_BYTES - len(line))
            if not piece:
                break
            line += piece
    return _status(line.partition(b"\n")[0], action)


def _status(line: bytes, action: HttpGetAction) -> ProbeResult:
    version, _, status_text = line.strip().partition(b" ")
    code = status_text[:3]
    if not version.startswith(b"HTTP/") or len(code) != 3 or not code.isdigit():
        return ProbeResult("failure", f"port {action.port}: the answer is not HTTP: {_plain(line) or 'nothing'}")
    if 200 <= int(code) < 400:
        return _PASSED
    return ProbeResult("failure", f"GET {action.path} on port {action.port}: HTTP status {int(code)}")


def _tls(sock: socket.socket, deadline: float) -> ssl.SSLSocket:
    """Return a TLS socket without verification, like the kubelet: a sandbox's certificate is its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _until(sock, deadline)
    return context.wrap_socket(sock)


def _until(sock: socket.socket, deadline: float) -> None:
    """Set the time-out of the next call to the deadline. Raises TimeoutError."""
    seconds_left = deadline - time.monotonic()
    if seconds_left <= 0:
        raise TimeoutError
    sock.settimeout(seconds_left)


def _plain(data: bytes) -> str:
    """Return a sandbox's output on one line, without control characters."""
    text = data[:_MESSAGE_BYTES].decode(errors="replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
