"""Probes in the network namespace of a sandbox: JSON of attempts on stdin, JSON of results on stdout.

    ["tcp", address, port]              open | refused | unreachable | silent
    ["ask", server, name, "udp"|"tcp"]  the address answered, nxdomain | refused | unreachable | silent | cut
    ["get", proxy, url]                 the status of the proxy's answer
    ["raw", proxy, text]                the same, of a request as it is written here
    ["tls", proxy, host, port, name]    tunnelled (TLS was spoken with the server), or the status, or cut
                                        (squid tells a refusal inside TLS too, with a certificate of its own)
    ["garble", proxy, host, port]       the same, for bytes that are no TLS
    ["stay", proxy, host]               open a tunnel, say so on a line of its own, then: cut, once it is

An argument is the longest time for an answer of a proxy, in seconds (15). Standard library only.
"""

import json
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SECONDS = 2.0  # a first packet that is lost is sent again after one
# For what is to come: on a loaded machine, too.
_ANSWER_SECONDS = float(sys.argv[1]) if __name__ == "__main__" and sys.argv[1:] else 15.0
_PORT = 3128


def main() -> None:
    attempts = json.load(sys.stdin)
    with ThreadPoolExecutor(32) as pool:
        json.dump(list(pool.map(_one, attempts)), sys.stdout)


def _one(attempt: list[Any]) -> str:
    kinds: dict[str, Callable[..., str]] = {
        "tcp": _tcp,
        "ask": _ask,
        "get": lambda proxy, url: _raw(proxy, f"GET {url} HTTP/1.1\r\nHost: {url.split('/')[2]}\r\n\r\n"),
        "raw": _raw,
        "tls": _tls,
        "garble": _garble,
        "stay": _stay,
    }
    try:
        return kinds[attempt[0]](*attempt[1:])
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "silent"
    except (ConnectionError, ssl.SSLError):
        return "cut"
    except OSError:
        return "unreachable"


def _tcp(address: str, port: int) -> str:
    with socket.create_connection((address, port), SECONDS):
        return "open"


def _ask(server: str, name: str, how: str) -> str:
    labels = b"".join(bytes([len(entry)]) + entry.encode() for entry in name.split("."))
    question = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1)
    if how == "tcp":
        with socket.create_connection((server, 53), SECONDS) as link:
            link.sendall(struct.pack("!H", len(question)) + question)
            answer = link.recv(4096)[2:]
            if not answer:
                return "cut"
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.settimeout(SECONDS)
            link.connect((server, 53))
            link.send(question)
            answer = link.recv(4096)
    code, count = answer[3] & 15, struct.unpack("!H", answer[6:8])[0]
    if code == 0 and count:
        return socket.inet_ntoa(answer[-4:])
    return {0: "empty", 2: "failed", 3: "nxdomain", 5: "refused"}.get(code, str(code))


def _raw(proxy: str, text: str) -> str:
    with socket.create_connection((proxy, _PORT), _ANSWER_SECONDS) as link:
        link.settimeout(_ANSWER_SECONDS)
        link.sendall(text.encode())
        return _status(link)


def _status(link: socket.socket) -> str:
    parts = link.recv(4096).split(b" ")
    return parts[1].decode() if len(parts) > 1 else "cut"


def _tunnel(link: socket.socket, host: str, port: int) -> str:
    link.settimeout(_ANSWER_SECONDS)
    link.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    return _status(link)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _tls(proxy: str, host: str, port: int, name: str | None) -> str:
    with socket.create_connection((proxy, _PORT), _ANSWER_SECONDS) as link:
        status = _tunnel(link, host, port)
        if status != "200":
            return status
        with _context().wrap_socket(link, server_hostname=name) as inside:
            inside.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while b"the internet" not in answer and b"ERR_" not in answer and (piece := inside.recv(4096)):
                answer += piece
            if b"the internet" in answer:
                return "tunnelled"
            return answer.split(b" ")[1].decode() if answer.startswith(b"HTTP/") else "cut"


def _garble(proxy: str, host: str, port: int) -> str:
    with socket.create_connection((proxy, _PORT), _ANSWER_SECONDS) as link:
        status = _tunnel(link, host, port)
        if status != "200":
            return status
        link.sendall(b"SSH-2.0-garbled\r\n\r\n" * 4)
        return "tunnelled" if b"SSH-2.0-lab" in link.recv(4096) else "cut"


def _stay(proxy: str, host: str) -> str:
    with socket.create_connection((proxy, _PORT), _ANSWER_SECONDS) as link:
        status = _tunnel(link, host, 443)
        if status != "200":
            return status
        with _context().wrap_socket(link, server_hostname=host) as inside:
            inside.settimeout(90)
            inside.sendall(b"GET /stay HTTP/1.1\r\nHost: x\r\n\r\n")
            inside.recv(1)
            print("open", flush=True)
            while inside.recv(4096):
                pass
            return "cut"


if __name__ == "__main__":
    main()
