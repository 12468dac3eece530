"""The panel's files: served before authentication, read-only, small, and without a word to another host."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest

from controller.api.panel.serve import FOLDER
from tests.api.listeners import client, opened
from tests.helpers_api import ApiStack

VENDOR = FOLDER / "vendor"
# Loaded when a terminal or a chart is opened.
LATER = ("xterm", "uplot")
MOST_BYTES = 60_000


@pytest.mark.parametrize("listener", ["unix", "tcp"])
def test_files_need_no_token_and_reach_no_route(api: ApiStack, listener: str) -> None:
    with (
        opened(api, host="127.0.0.1") as observed,
        client(api) as local,
        httpx.Client(base_url=observed.url, verify=False, timeout=60) as remote,
    ):
        requested = local if listener == "unix" else remote
        page = {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}
        assert requested.get("/panel").headers["location"] == "/panel/"
        index = requested.get("/panel/", headers=page)
        assert (index.status_code, index.headers["content-type"]) == (200, "text/html; charset=utf-8")
        for path in ("main.js", "app.css", "vendor/preact.mjs", "schema/sandboxes.json"):
            assert requested.get(f"/panel/{path}", headers=page).status_code == 200
        assert not api.meter.counted
        for path in ("nothing.js", "..%2fserve.py", "static/main.js", ""):
            assert requested.post(f"/panel/{path}").status_code in (404, 405)
            assert requested.delete(f"/panel/{path}").status_code in (404, 405)
        assert requested.get("/panel/..%2fserve.py").status_code == 404
        assert requested.get("/panels").status_code in (401, 404)


def test_pages_are_confined(api: ApiStack) -> None:
    with opened(api), client(api) as local:
        first, second = local.get("/panel/"), local.get("/panel/")
    nonces = [
        re.findall(r"'nonce-([^']+)'", response.headers["content-security-policy"]) for response in (first, second)
    ]
    assert nonces[0] != nonces[1]
    assert f'nonce="{nonces[0][0]}"' in first.text
    policy = first.headers["content-security-policy"]
    for piece in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert piece in policy
    assert "unsafe" not in policy
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["x-content-type-options"] == "nosniff"


def test_files_are_cached_by_content_and_compressed(api: ApiStack) -> None:
    with opened(api), client(api) as local:
        first = local.get("/panel/vendor/preact.mjs")
        assert first.headers["content-encoding"] == "gzip"
        assert first.content == (VENDOR / "preact.mjs").read_bytes()
        again = local.get("/panel/vendor/preact.mjs", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        plain = local.get("/panel/vendor/preact.mjs", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        version = re.findall(r'src="([0-9a-f]{16})/main.js"', local.get("/panel/").text)[0]
        response = local.get(f"/panel/{version}/vendor/preact.mjs")
        assert (response.content, "immutable" in response.headers["cache-control"]) == (first.content, True)
        assert local.get(f"/panel/{version[::-1]}/main.js").status_code == 404  # of another version of the panel
        head = local.head("/panel/main.js")
        assert (head.status_code, head.content, int(head.headers["content-length"]) > 0) == (200, b"", True)


def test_little_is_loaded_before_the_list(api: ApiStack) -> None:
    index = (FOLDER / "index.html").read_text()
    first = {FOLDER / name for name in re.findall(r'(?:href|src)="(?:{{version}}/)?([a-z][^"]+)"', index)}
    desired, observed = list(first), set()
    while desired:
        file = desired.pop()
        if file in observed:
            continue
        observed.add(file)
        if file.suffix == ".js":
            desired += [file.parent / match for match in re.findall(r"from '(\.[^']+)'", file.read_text())]
    assert not [entry for entry in observed if entry.name.startswith(LATER)]
    assert sum(len(gzip.compress(entry.read_bytes(), 9)) for entry in observed) < MOST_BYTES


def test_no_file_names_another_host() -> None:
    for file in FOLDER.rglob("*"):
        if file.is_file() and VENDOR not in file.parents:
            matches = re.findall(r"(?:https?|wss?)://[\w.-]+", file.read_text())
            assert set(matches) <= {"http://www.w3.org"}, file  # the name space of SVG


def test_vendored_files_are_as_their_manifest_says() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    listed = {name: hash_ for package in manifest["packages"] for name, hash_ in package["sha256"].items()}
    files = {path.name for path in VENDOR.iterdir()} - {"manifest.json"}
    assert files == set(listed)
    for name, hash_ in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == hash_, name
    for package in manifest["packages"]:
        assert package["license"] in ("MIT", "Apache-2.0")
        assert package["version"]
        assert any(Path(name).suffix == ".txt" for name in package["files"].values())


def test_doctor_is_for_admins(api: ApiStack) -> None:
    from tests.api.listeners import token

    with opened(api):
        with client(api, token(api, "operator", "default")) as second:
            assert second.get("/apis/paddock/v1alpha1/doctor").status_code == 403
        with client(api, token(api, "admin")) as admin:
            document = admin.get("/apis/paddock/v1alpha1/doctor").json()
    assert (document["kind"], document["items"]) == ("DoctorReport", [])
