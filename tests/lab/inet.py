"""The lab's Internet, a process in a network namespace of its own: names, servers, and a log of all traffic.

    python inet.py LOG CERTIFICATE internet   # DNS, HTTP, TLS and SSH ports on every address; every packet is logged
    python inet.py LOG CERTIFICATE host       # a resolver on loopback, as systemd-resolved is; a service of the host

Each line of LOG is one JSON object: {"name": ...} asked of a DNS, {"to": ..., "port": ...} connected, {"packet": ...}.
Standard library only; it says `up` once all of it listens.
"""

import json
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

PACKAGES = "198.51.100.82"
GIT, OTHER, METADATA, LAN10, LAN192 = "198.51.100.80", "198.51.100.81", "169.254.169.254", "10.1.2.3", "192.168.77.3"
DNS = "198.51.100.53"
ZONE = {
    "git.example.org": GIT,
    "sub.git.example.org": OTHER,
    "other.example.org": OTHER,
    "packages.example.org": PACKAGES,
    "deep.wild.example.net": OTHER,
    "wild.example.net": OTHER,
    "evilgit.example.org": OTHER,
    "git.example.org.evil.example": OTHER,
    "private.example.org": LAN10,
    "lan.example.org": LAN192,
    "metadata.example.org": METADATA,
    "loop.example.org": "127.0.0.1",
    "zero.example.org": "0.0.0.0",
}
HOST_PORT = 7777
_IP_PKTINFO = 8
_lock = threading.Lock()


def main(log: str, certificate: str, role: str) -> None:
    with open(log, "a", buffering=1) as file:

        def tell(**said: object) -> None:
            with _lock:
                file.write(json.dumps(said) + "\n")

        if role == "internet":
            _packets(tell)
            files = Path(log).parent / "packages"
            _serve("0.0.0.0", 80, lambda link: _http(link, files, tell), tell)
            _serve("0.0.0.0", 443, lambda link: _http(_secured(link, certificate), files, tell), tell)
            _serve("0.0.0.0", 22, lambda link: link.sendall(b"SSH-2.0-lab\r\n"), tell)
            _names("0.0.0.0", tell)
        else:
            _serve("0.0.0.0", HOST_PORT, lambda link: link.sendall(b"a service of the host\n"), tell)
            _names("127.0.0.1", tell)
        print("up", flush=True)
        threading.Event().wait()


def _background(run: Callable[..., object]) -> None:
    threading.Thread(target=run, daemon=True).start()


def _serve(address: str, port: int, answer: Callable[[socket.socket], object], tell: Callable[..., None]) -> None:
    server = socket.create_server((address, port), backlog=64)

    def one(link: socket.socket) -> None:
        tell(to=link.getsockname()[0], port=port)
        try:
            with link:
                answer(link)
        except OSError:
            pass

    def run() -> None:
        while True:
            link, _ = server.accept()
            _background(lambda link=link: one(link))

    _background(run)


def _secured(link: socket.socket, certificate: str) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context.wrap_socket(link, server_side=True)


def _http(link: socket.socket, files: Path, tell: Callable[..., None]) -> None:
    """Answer each request, and log it; `/stay` sends its headers and then nothing. At PACKAGES it has files."""
    has_files = link.getsockname()[0] == PACKAGES
    with link, link.makefile("rb") as reader:
        while line := reader.readline():
            parts = line.split()
            headers = {}
            while header := reader.readline().strip():
                name, _, value = header.decode(errors="replace").partition(":")
                headers[name.lower()] = value.strip()
            tell(asked=f"{headers.get('host')}{parts[1].decode()}", headers=headers)
            if length := int(headers.get("content-length", 0)):
                reader.read(length)
            if len(parts) > 1 and parts[1].endswith(b"/stay"):
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nstaying")
                threading.Event().wait(600)
            status, kind, body = _file(files, parts[1]) if has_files else (b"200 OK", b"text/plain", b"the internet")
            head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
            link.sendall(head + body)


def _file(files: Path, path: bytes) -> tuple[bytes, bytes, bytes]:
    """The status, type and content of a file; a folder's is its file `index`."""
    observed = files / unquote(path.decode()).partition("?")[0].strip("/")
    observed_path = observed / "index" if observed.is_dir() else observed
    if not observed_path.is_file():
        return b"404 Not Found", b"text/plain", b"no such file"
    body = observed_path.read_bytes()
    kind = (
        b"application/json"
        if body.startswith(b"{")
        else b"text/html"
        if observed_path.name == "index"
        else b"application/x"
    )
    return b"200 OK", kind, body


def _names(address: str, tell: Callable[..., None]) -> None:
    """A DNS over UDP and TCP. It answers from the address that was asked."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    udp.bind((address, 53))

    def run() -> None:
        while True:
            question, [(level, kind, data)], _, peer = udp.recvmsg(4096, 64)
            source = struct.pack("I4s4s", 0, data[4:8], bytes(4))  # struct in_pktinfo: any interface
            udp.sendmsg([_answer(question, tell)], [(level, kind, source)], 0, peer)

    def over_tcp(link: socket.socket) -> None:
        size = struct.unpack("!H", link.recv(2))[0]
        answer = _answer(link.recv(size), tell)
        link.sendall(struct.pack("!H", len(answer)) + answer)

    _background(run)
    _serve(address, 53, over_tcp, lambda **_: None)


def _answer(question: bytes, tell: Callable[..., None]) -> bytes:
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode(errors="replace"))
        at += 1 + question[at]
    name, kind, end = ".".join(labels).lower(), struct.unpack("!H", question[at + 1 : at + 3])[0], at + 5
    tell(name=name)
    address = ZONE.get(name)
    code = 0x8180 if address else 0x8183
    answers = b""
    if address and kind == 1:
        answers = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(address)
    head = question[:2] + struct.pack("!HHHHH", code, 1, int(bool(answers)), 0, 0)
    return head + question[12:end] + answers


def _packets(tell: Callable[..., None]) -> None:
    """Log every IPv4 and IPv6 packet that arrives from the engine's side, but what follows on a connection's first."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))

    def run() -> None:
        while True:
            data, (link, protocol, kind, *_) = sniffer.recvfrom(2048)
            if kind == socket.PACKET_OUTGOING or link == "lo":
                continue
            if protocol == 0x0800 and len(data) >= 20:
                size = (data[0] & 15) * 4
                port = struct.unpack("!H", data[size + 2 : size + 4])[0] if data[9] in (6, 17) else 0
                if data[9] == 6 and data[size + 13] & 0x12 != 0x02:
                    continue  # of a connection that was logged when it began: proxies close theirs when they like
                tell(
                    packet=socket.inet_ntoa(data[16:20]),
                    source=socket.inet_ntoa(data[12:16]),
                    protocol=data[9],
                    port=port,
                )
            elif protocol == 0x86DD and data[6] not in (58, 0):  # ICMPv6 is the kernel's own neighbour talk
                tell(packet=socket.inet_ntop(socket.AF_INET6, data[24:40]), source="", protocol=data[6], port=0)

    _background(run)


if __name__ == "__main__":
    main(*sys.argv[1:])
