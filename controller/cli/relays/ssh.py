"""SSH to a sandbox over the daemon: the bytes of one connection, and the configuration of OpenSSH's client."""

import array
import contextlib
import os
import re
import shlex
import socket
import stat
import sys
import threading
from dataclasses import dataclass

from paddock._client.errors import ClientError, Refused
from paddock._client.handshake import open_socket, protocol, upgrade
from paddock._client.server import Server
from paddock._version import API_VERSION

DOMAIN = "paddock"
_RAW, _FRAMED = "raw.ssh.paddock", "ssh.paddock"
_PIECE_BYTES = 1 << 17
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr"
DEFAULT_NAMESPACE = "default"
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class SshHost:
    """Identity of a daemon for SSH clients."""

    instance: str
    host_key: str
    address: str = ""

    @property
    def alias(self) -> str:
        """Name under which clients know the host key."""
        return f"paddock-{self.instance}"

    @property
    def known_hosts_line(self) -> str:
        return f"{self.alias} {self.host_key}\n"


def host_name(name: str, namespace: str) -> str:
    """Return the name of a sandbox as an SSH host."""
    return f"{name}.{namespace}.{DOMAIN}"


def sandbox_of(host: str) -> tuple[str, str]:
    """Return the namespace and the name of a sandbox by its SSH host. Raises ClientError."""
    parts = host.lower().removesuffix(".").split(".")
    if len(parts) in (2, 3) and parts[-1] == DOMAIN and all(map(_NAME.fullmatch, parts)):
        return (parts[1] if len(parts) == 3 else DEFAULT_NAMESPACE), parts[0]
    raise ClientError(f"{host[:100]}: is not the host of a sandbox; write NAME.{DOMAIN} or NAME.NAMESPACE.{DOMAIN}")


def options(known_hosts: str, host: SshHost, proxy: str, *, passes_socket: bool) -> dict[str, str]:
    """Return the options of OpenSSH's client for sandboxes. `proxy` is the ProxyCommand."""
    return {
        "ProxyCommand": proxy,
        "ProxyUseFdpass": "yes" if passes_socket else "no",
        "HostKeyAlias": host.alias,
        "UserKnownHostsFile": _quoted(known_hosts),
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "Ciphers": _CIPHERS,
        "ServerAliveInterval": "30",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }


def proxy_command(program: list[str]) -> str:
    """Return the ProxyCommand of a program. OpenSSH replaces %h, and gives it to a shell."""
    return " ".join(shlex.quote(word).replace("%", "%%") for word in program) + " ssh proxy %h"


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def connect(server: Server, host: str) -> "tuple[socket.socket, bool]":
    """Connect to the SSH server of a sandbox. Return the socket, and True if it has the bytes as they are.

    Raises ClientError; Refused; Unreachable.
    """
    namespace, name = sandbox_of(host)
    target = f"/apis/{API_VERSION}/namespaces/{namespace}/sandboxes/{name}/ssh"
    sock = open_socket(server)
    try:
        _, headers = upgrade(sock, server, target, [_RAW, _FRAMED] if server.socket else [_FRAMED])
    except Refused as error:
        sock.close()
        if error.code != _NOT_FOUND:
            raise
        advice = "`paddock get sandboxes -A` lists those that you may see"
        raise ClientError(f"{error}; {advice}") from error
    except BaseException:
        sock.close()
        raise
    sock.settimeout(None)
    return sock, protocol(headers) == _RAW


def pass_on(sock: socket.socket, output: int = 1) -> bool:
    """Hand the socket to the SSH client (ProxyUseFdpass). Return False if the output takes no descriptor."""
    if not stat.S_ISSOCK(os.fstat(output).st_mode):
        return False
    with contextlib.closing(socket.socket(fileno=os.dup(output))) as client:
        if client.family != socket.AF_UNIX:
            return False
        descriptors = array.array("i", [sock.fileno()])
        try:
            client.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        except OSError:
            return False
    return True


def pass_on_relayed(sock: socket.socket) -> bool:
    """Hand one end of a socket pair to the SSH client, and relay at its other end in a process of its own.

    OpenSSH waits until this process has ended. Return False if the output takes no descriptor.
    """
    end, client_end = socket.socketpair()
    with end, client_end:
        if not pass_on(client_end):
            return False
        client_end.close()
        if os.fork() == 0:
            try:
                os.setsid()  # Ctrl-C in ssh's terminal is for ssh
                with open(os.devnull, "r+b", 0) as nowhere:
                    for descriptor in range(3):
                        os.dup2(nowhere.fileno(), descriptor)
                relay(sock, end.fileno(), end.fileno(), is_raw=False)
            finally:
                os._exit(0)
    return True


def relay(sock: socket.socket, source: int = 0, sink: int = 1, *, is_raw: bool) -> None:
    """Relay between the connection and the descriptors of the SSH client, until either ends. Raises ClientError."""
    framed = None
    if not is_raw:
        from paddock._client.port_forward import FramedConnection  # its imports take longer than a handshake

        framed = FramedConnection(sock)

    def send() -> None:
        with contextlib.suppress(OSError, ClientError):
            while data := os.read(source, _PIECE_BYTES):
                framed.send(data) if framed else sock.sendall(data)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=send, daemon=True).start()
    with contextlib.suppress(OSError, ClientError):
        while data := framed.receive() if framed else sock.recv(_PIECE_BYTES):
            while data:
                data = data[os.write(sink, data) :]


def program() -> list[str]:
    """Return how this command is called from elsewhere."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "paddock" and os.access(called, os.X_OK):
        return [called]
    return [sys.executable, "-P", "-m", "controller"]
