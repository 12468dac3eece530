"""Bills of materials and the audit: what is read, how it is written, known vulnerabilities."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.schema import _res as schemas
from hypothesis import given, settings
from hypothesis import strategies as st
from packageurl import PackageURL
from referencing import Registry, Resource

from deploy.supply import audit, cyclonedx, image, sarif, sources, versions
from deploy.supply.advisories import Folder, Service, Unreachable, Vulnerability, distinct
from deploy.supply.components import (
    Component,
    from_dpkg,
    from_npm,
    from_package_lock,
    from_python,
    from_requirements,
    from_vendored,
    merged,
)
from tests.deploy.conftest import CHECKOUT, Checkout
from tests.examples import examples

STATUS = """Package: libssl3
Status: install ok installed
Architecture: amd64
Source: openssl (3.0.1-1)
Version: 3.0.1-1+b2

Package: removed
Status: deinstall ok config-files
Version: 1

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 1:12~rc1
"""
SSL = Component("deb", "libssl3", "3.0.1-1+b2", "openssl", "3.0.1-1", "amd64", "debian-12")
H11 = Component("pypi", "h11", "0.14.0", places=("requirements.lock:3",))
SCOPED = Component("npm", "@x/y", "1.2.3", licence="MIT", hashes=(("SHA-512", "ab" * 64),), places=("lock:1",))


def osv(id_: str, ecosystem: str, name: str, **ranges: Any) -> dict[str, Any]:
    package = {"ecosystem": ecosystem, "name": name}
    return {"id": id_, "summary": f"{name} is weak", "affected": [{"package": package, **ranges}]}


def events(*pairs: tuple[str, str], type_: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": type_, "events": [dict([pair]) for pair in pairs]}]}


WEAK_H11 = osv("GHSA-1", "PyPI", "h11", **events(("introduced", "0"), ("fixed", "0.16.0")))
SEVERE = {**WEAK_H11, "aliases": ["CVE-1"], "database_specific": {"severity": "CRITICAL"}}
TRACKER = {
    "openssl": {
        "CVE-2": {"description": "fixed", "releases": {"bookworm": {"status": "resolved", "fixed_version": "3.0.2-1"}}},
        "CVE-3": {"description": "old", "releases": {"bookworm": {"status": "resolved", "fixed_version": "3.0.0-1"}}},
        "CVE-4": {"description": "open", "releases": {"bookworm": {"status": "open", "urgency": "low"}}},
        "CVE-5": {"description": "no", "releases": {"bookworm": {"status": "open", "urgency": "unimportant"}}},
        "CVE-6": {"description": "elsewhere", "releases": {"trixie": {"status": "open"}}},
    }
}


def folder(path: Path, **files: Any) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / f"{name}.json").write_text(json.dumps(data))
    return path


def test_reads_the_records_of_package_managers() -> None:
    assert next(from_dpkg(STATUS, "debian-12")) == SSL
    assert [component.purl for component in from_dpkg(STATUS, "debian-12")] == [
        "pkg:deb/debian/libssl3@3.0.1-1%2Bb2?arch=amd64&distro=debian-12&upstream=openssl%403.0.1-1",
        "pkg:deb/debian/libstdc%2B%2B6@1:12~rc1?arch=amd64&distro=debian-12",
    ]
    metadata = "Metadata-Version: 2.1\nName: Foo_Bar\nVersion: 1.0\nLicense-Expression: MIT\n\nName: body\n"
    assert [component.purl for component in from_python(metadata)] == ["pkg:pypi/foo-bar@1.0"]
    assert [component.purl for component in from_npm('{"name": "@x/y", "version": "1.2.3"}')] == [
        "pkg:npm/%40x/y@1.2.3"
    ]
    assert not list(from_npm('{"type": "module"}'))
    assert not list(from_npm("{"))
    pins = list(from_requirements("# x\na==1 \\\n    --hash=sha256:00\nB_c==2 ; sys_platform == 'x' \\\n", "r.lock"))
    assert [(pin.purl, pin.places) for pin in pins] == [
        ("pkg:pypi/a@1", ("r.lock:2",)),
        ("pkg:pypi/b-c@2", ("r.lock:4",)),
    ]


@pytest.mark.parametrize("each", [SSL, H11, SCOPED, *from_dpkg(STATUS, "debian-12")], ids=lambda each: each.name)
def test_package_urls_are_those_of_the_standard(each: Component) -> None:
    parsed = PackageURL.from_string(each.purl)
    assert (parsed.version, parsed.name) == (each.version, each.name.rpartition("/")[2])
    if each.ecosystem == "deb":
        assert parsed.qualifiers["distro"] == "debian-12"


def test_an_image_is_read_without_running_it() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in {
            "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
            "var/lib/dpkg/status": STATUS,
            "var/lib/dpkg/status.d/zlib1g": "Package: zlib1g\nVersion: 1\n",
            "var/lib/dpkg/status.d/zlib1g.md5sums": "Package: no\nVersion: 1\n",
            "var/lib/dpkg/info/python3-six.list": "/.\n/usr/lib/python3/dist-packages/six-1.dist-info/METADATA\n",
            "usr/lib/python3/dist-packages/six-1.dist-info/METADATA": "Name: six\nVersion: 1\n\n",
            "opt/a/node_modules/@x/y/package.json": '{"name": "@x/y", "version": "1"}',
            "opt/a/node_modules/@x/y/node_modules/z/package.json": '{"name": "z", "version": "2"}',
            "opt/a/node_modules/@x/y/test/fixture/package.json": '{"name": "fixture", "version": "3"}',
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    stream.seek(0)
    found = merged(image.read_records(stream).components())
    assert {(component.ecosystem, component.name, component.owner) for component in found} == {
        ("deb", "libssl3", ""),
        ("deb", "libstdc++6", ""),
        ("deb", "zlib1g", ""),
        ("npm", "@x/y", ""),
        ("npm", "z", ""),
        ("pypi", "six", "python3-six"),
    }
    assert {component.distro for component in found if component.ecosystem == "deb"} == {"debian-13"}


def valid(document: str) -> Bom:
    """The document as CycloneDX's own library reads it, after its published schema accepted it."""
    texts = {path.name: path.read_text() for path in Path(schemas.__file__).parent.glob("*.json")}
    remaining = ("jsf-0.82.SNAPSHOT.schema.json", "spdx.SNAPSHOT.schema.json")
    registry: Registry[Any] = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(json.loads(texts[name]))) for name in remaining
    )
    schema = json.loads(texts["bom-1.6.SNAPSHOT.schema.json"])
    jsonschema.Draft7Validator(schema, registry=registry).validate(json.loads(document))
    assert json.loads(document)["specVersion"] == SchemaVersion.V1_6.to_version()
    bom: Bom = Bom.from_json(json.loads(document))  # type: ignore[attr-defined]
    return bom


def test_bills_are_valid_and_always_the_same() -> None:
    parts = merged([SSL, H11, SCOPED, H11])
    text = cyclonedx.document("paddock/x:1", parts, version="sha256:00", created="2026-01-01T00:00:00.123456789Z")
    assert text == cyclonedx.document(
        "paddock/x:1", parts, version="sha256:00", created="2026-01-01T00:00:00.123456789Z"
    )
    read = valid(text)
    assert {str(component.purl) for component in read.components} == {component.purl for component in parts}
    assert read.metadata.component is not None
    assert (read.metadata.component.name, read.metadata.component.version) == ("paddock/x:1", "sha256:00")


@pytest.mark.parametrize("file", sources.FILES)
def test_each_pin_of_each_lock_is_in_its_bill(file: str) -> None:
    text = (CHECKOUT / file).read_text()
    read = valid(cyclonedx.document(file, merged(sources.of_file(file))))
    if file.endswith(".lock"):
        expected = sum("==" in line and line[0].isalnum() for line in text.splitlines() if line)
    elif file.endswith("package-lock.json"):
        packages = json.loads(text)["packages"].items()
        expected = len({(path.rpartition("node_modules/")[2], entry["version"]) for path, entry in packages if path})
    else:
        expected = len(json.loads(text)["packages"])
    assert len(read.components) == expected > 0


@given(st.lists(st.text("0123456789abz.+~-:", min_size=1, max_size=8), min_size=2, max_size=2))
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg, which knows how it is")
def test_debian_versions_are_ordered_as_dpkg_does(found: list[str]) -> None:
    mine, text = (f"{len(name)}:1{name.replace(':', '')}-1" for name in found)
    if len(found[0]) % 2:
        mine, text = mine.partition(":")[2], text.partition(":")[2]
    order = versions.compare_debian(mine, text)
    word = {-1: "lt", 0: "eq", 1: "gt"}[order]
    assert subprocess.run(["dpkg", "--compare-versions", mine, word, text], check=False).returncode == 0, (
        mine,
        text,
    )


def test_other_versions_are_ordered_as_their_ecosystems_do() -> None:
    npm = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-rc.2", "1.0.0-rc.11", "1.0.0", "1.2.0", "1.10.0"]
    npm.reverse()
    assert sorted(npm, key=versions.key("npm")) == npm[::-1]
    python = ["1.0.dev1", "1.0a2", "1.0rc1", "1.0", "1.0.post1", "1.9", "1.10"]
    python.reverse()
    assert sorted(python, key=versions.key("pypi")) == python[::-1]


@pytest.mark.parametrize(
    ("version", "ranges", "weak", "fixed"),
    [
        ("0.14.0", events(("introduced", "0"), ("fixed", "0.16.0")), True, "0.16.0"),
        ("0.16.0", events(("introduced", "0"), ("fixed", "0.16.0")), False, ""),
        ("0.9", events(("introduced", "0.10"), ("fixed", "0.16.0")), False, ""),
        ("2.1", events(("introduced", "1"), ("fixed", "1.5"), ("introduced", "2"), ("fixed", "2.4")), True, "2.4"),
        ("1.7", events(("introduced", "1"), ("fixed", "1.5"), ("introduced", "2"), ("fixed", "2.4")), False, ""),
        ("1.5", events(("introduced", "0"), ("last_affected", "1.5")), True, ""),
        ("1.6", events(("introduced", "0"), ("last_affected", "1.5")), False, ""),
        ("1.0", {"versions": ["1.0"]}, True, ""),
        ("1.0", events(("introduced", "0"), ("fixed", "abcdef"), type_="GIT"), False, ""),
        ("no version", events(("introduced", "0"), ("fixed", "1")), True, "1"),
    ],
)
def test_a_folder_of_osv_decides_by_version(
    tmp_path: Path, version: str, ranges: dict[str, Any], weak: bool, fixed: str
) -> None:
    source = Folder(folder(tmp_path / "db", one=osv("GHSA-1", "PyPI", "H11", **ranges)))
    vulnerabilities = source.look_up([Component("pypi", "h11", version)])
    assert [(vulnerability.id, vulnerability.fixed) for vulnerability in vulnerabilities] == (
        [("GHSA-1", fixed)] if weak else []
    )


def test_debians_tracker_decides_by_source_package(tmp_path: Path) -> None:
    vulnerabilities = Folder(folder(tmp_path / "db", tracker=TRACKER)).look_up([SSL])
    assert {
        (vulnerability.id, vulnerability.fixed, vulnerability.severity, vulnerability.actionable)
        for vulnerability in vulnerabilities
    } == {
        ("CVE-2", "3.0.2-1", "unknown", True),
        ("CVE-4", "", "low", False),
    }


def test_archives_are_read_and_withdrawn_records_left_out(tmp_path: Path) -> None:
    db = folder(tmp_path / "db", gone={**osv("GHSA-9", "npm", "@x/y", versions=["1.2.3"]), "withdrawn": "2026"})
    with zipfile.ZipFile(db / "all.zip", "w") as archive:
        archive.writestr("GHSA-8.json", json.dumps(osv("GHSA-8", "npm", "@x/y", versions=["1.2.3"])))
    assert [vulnerability.id for vulnerability in Folder(db).look_up([SCOPED])] == ["GHSA-8"]


def test_what_a_folder_knows_nothing_of_is_not_taken_for_good(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="has no advisories of npm"):
        Folder(folder(tmp_path / "db", one=WEAK_H11)).look_up([SCOPED])
    with pytest.raises(Unreachable, match="has no advisories; put"):
        Folder(tmp_path / "nowhere")
    (tmp_path / "db" / "bad.json").write_text("{")
    with pytest.raises(Unreachable, match="can't be read"):
        Folder(tmp_path / "db")


@contextmanager
def service(records: dict[str, dict[str, Any]], *, status: int = 200) -> Iterator[str]:
    """An OSV service of these records by package name, which answers a page at a time."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            results = []
            for entry in queries:
                ids = [id_ for id_, record in records.items() if record["affected"][0]["package"] == entry["package"]]
                at = int(entry.get("page_token", 0))
                document = {"next_page_token": str(at + 1)} if at + 1 < len(ids) else {}
                results.append({"vulns": [{"id": ids[at]}], **document} if ids else {})
            self.answer({"results": results})

        def do_GET(self) -> None:
            self.answer(records[self.path.rpartition("/")[2]])

        def answer(self, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_service_is_asked_page_by_page() -> None:
    debian = osv("DEBIAN-1", "Debian:12", "openssl", **events(("introduced", "0"), ("fixed", "3.0.2-1")))
    with service({"GHSA-1": SEVERE, "PYSEC-1": {**WEAK_H11, "id": "PYSEC-1"}, "DEBIAN-1": debian}) as url:
        vulnerabilities = Service(url).look_up([H11, SSL, SCOPED])
    assert [
        (vulnerability.component.name, vulnerability.id, vulnerability.severity, vulnerability.fixed)
        for vulnerability in vulnerabilities
    ] == [
        ("h11", "GHSA-1", "critical", "0.16.0"),
        ("libssl3", "DEBIAN-1", "unknown", "3.0.2-1"),
        ("h11", "PYSEC-1", "unknown", "0.16.0"),
    ]


def test_a_service_that_fails_is_unreachable() -> None:
    with service({}, status=500) as url, pytest.raises(Unreachable, match="500"):
        Service(url).look_up([H11])
    with pytest.raises(Unreachable, match="was not reached"):
        Service(url).look_up([H11])


def test_one_vulnerability_under_two_names_is_one() -> None:
    two = [
        Vulnerability(H11, "PYSEC-1", aliases=frozenset({"PYSEC-1", "CVE-1"})),
        Vulnerability(H11, "GHSA-1", severity="high", fixed="2", aliases=frozenset({"GHSA-1", "CVE-1"})),
        Vulnerability(SCOPED, "CVE-1", aliases=frozenset({"CVE-1"})),
    ]
    assert {(vulnerability.component.name, vulnerability.id) for vulnerability in distinct(two)} == {
        ("h11", "GHSA-1"),
        ("@x/y", "CVE-1"),
    }


def test_sarif_names_file_line_and_level() -> None:
    open_ = Vulnerability(SSL, "CVE-4", summary="open", severity="high")
    observed = [
        ("requirements.lock:3", Vulnerability(H11, "GHSA-1", "weak", "critical", "0.16.0")),
        ("images/base/Dockerfile", open_),
    ]
    log = json.loads(sarif.document(observed, ["npm was not reached"], "1"))
    (run,) = log["runs"]
    where = [entry["locations"][0]["physicalLocation"] for entry in run["results"]]
    assert [(entry["artifactLocation"]["uri"], entry["region"]["startLine"]) for entry in where] == [
        ("requirements.lock", 3),
        ("images/base/Dockerfile", 1),
    ]
    assert [entry["level"] for entry in run["results"]] == ["error", "note"]
    assert run["tool"]["driver"]["rules"][0]["properties"]["security-severity"] == "9.5"
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "npm was not reached" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_what_is_debians_is_left_to_debian() -> None:
    report = audit.Report()
    asked: list[Component] = []

    class Asked:
        def look_up(self, components: Any) -> list[Vulnerability]:
            asked.extend(components)
            return []

    owned = Component("pypi", "pip", "23", owner="python3-pip")
    audit.looked_up(Asked(), [H11, owned, SSL, Component("file", "bin/x", "0")], report, "x")
    assert asked == [H11, SSL]


@pytest.mark.parametrize(
    ("findings", "blind", "code"),
    [
        ([], [], 0),
        ([Vulnerability(SSL, "CVE-4")], [], 0),  # only Debian can act
        ([Vulnerability(SSL, "CVE-2", fixed="3.0.2-1")], ["x"], 1),
        ([Vulnerability(H11, "GHSA-1")], [], 1),
        ([Vulnerability(SSL, "CVE-4")], ["npm was not reached"], 3),
    ],
)
def test_exit_codes_say_what_to_do(findings: list[Vulnerability], blind: list[str], code: int) -> None:
    assert audit.Report([("f", finding) for finding in findings], [], blind).exit_code == code


def test_make_audit_says_what_is_weak_and_what_it_could_not_see(checkout: Checkout, tmp_path: Path) -> None:
    """The script as users call it, on this checkout's locks; there is no engine."""
    pinned = next(component for component in sources.of_file("requirements.lock") if component.name == "h11")
    weak = osv("GHSA-1", "PyPI", "h11", **events(("introduced", "0"), ("fixed", f"{pinned.version}.1")))
    folder(tmp_path / "db", weak=weak, npm=osv("GHSA-2", "npm", "nobody", versions=["1"]))
    checkout.env["PADDOCK_VENV"] = sys.prefix
    checkout.command("apt-get", "#!/bin/sh\nexit 0\n")
    script = [str(CHECKOUT / "deploy/audit.sh"), "--db", "db", "--sarif", "found.sarif"]
    done = subprocess.run(script, env=checkout.env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"h11 {pinned.version}: GHSA-1; fixed in: {pinned.version}.1" in done.stdout
    assert "make lock ARGS=--upgrade" in done.stdout
    assert "paddock/base:1 was not looked at" in done.stderr
    results = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
    places = [entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for entry in results]
    assert "requirements.lock" in places
    checkout.env["PADDOCK_AUDIT_OSV"] = "http://127.0.0.1:9"
    blind = subprocess.run(script[:1], env=checkout.env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert blind.returncode == 3, blind.stdout + blind.stderr
    count = len(sources.of_file("requirements.lock"))
    assert f"requirements.lock: {count} packages were not looked up: 127.0.0.1:9 was not reached" in blind.stderr
    assert "some checks were skipped" in blind.stdout


def test_the_panels_manifest_and_npms_lock_are_read() -> None:
    text = '{"packages": [{"name": "preact", "version": "1", "license": "MIT", "files": {}}]}'
    assert [(component.purl, component.licence) for component in from_vendored(text, "m")] == [
        ("pkg:npm/preact@1", "MIT")
    ]
    lock = {"packages": {"": {"name": "x"}, "node_modules/a": {"version": "1", "integrity": "sha512-AAAA"}}}
    (read,) = from_package_lock(json.dumps(lock), "l")
    assert (read.purl, read.hashes) == ("pkg:npm/a@1", (("SHA-512", "000000"),))
