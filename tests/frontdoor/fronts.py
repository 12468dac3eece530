"""Debian's Caddy and nginx in front of previews, with TLS for *.preview.test."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon import wait_for
from tests.frontdoor.ports import accepts

DOMAIN = "preview.test"


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate for *.preview.test, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = f"subjectAltName=DNS:*.{DOMAIN},DNS:{DOMAIN}"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={DOMAIN} -addext {names}"
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], capture_output=True, check=True)
    key.chmod(0o600)
    return cert, key


def _caddy(folder: Path, port: int, preview: int) -> list[str]:
    cert, key = certificate(folder)
    (folder / "Caddyfile").write_text(
        "{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + str(folder / "caddy") + "\n}\n"
        f"https://*.{DOMAIN}:{port} {{\n\tbind 127.0.0.1\n\ttls {cert} {key}\n"
        f"\treverse_proxy 127.0.0.1:{preview} {{\n\t\tflush_interval -1\n\t}}\n}}\n"
    )
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def _nginx(folder: Path, port: int, preview: int) -> list[str]:
    cert, key = certificate(folder)
    passed = {
        "Host": "$http_host",
        "Upgrade": "$http_upgrade",
        "Connection": "$connection_upgrade",
        "X-Forwarded-For": "$proxy_add_x_forwarded_for",
        "X-Forwarded-Proto": "$scheme",
    }
    headers = " ".join(f"proxy_set_header {name} {value};" for name, value in passed.items())
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid; error_log stderr; events {{}}\n"
        "http { access_log off; map $http_upgrade $connection_upgrade { default upgrade; '' ''; }\n"
        f"server {{ listen 127.0.0.1:{port} ssl http2; server_name *.{DOMAIN}; ssl_certificate {cert};\n"
        f"ssl_certificate_key {key}; client_max_body_size 0; location / {{ proxy_pass http://127.0.0.1:{preview};\n"
        f"proxy_http_version 1.1; proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h;\n"
        f"{headers} }} }} }}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


FRONTS = {"caddy": _caddy, "nginx": _nginx}


def missing(name: str) -> bool:
    """Return True if this host lacks the proxy."""
    return shutil.which(name) is None


@contextmanager
def front(name: str, folder: Path, port: int, preview: int) -> Iterator[None]:
    """Run a proxy with TLS at a port, in front of previews at another, for the block."""
    folder.mkdir()
    server = subprocess.Popen(FRONTS[name](folder, port, preview), stderr=subprocess.DEVNULL)
    try:
        wait_for(name, lambda: accepts(port))
        yield
    finally:
        server.terminate()
        server.wait()
