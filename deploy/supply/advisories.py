"""Known vulnerabilities of components: asked of an OSV service, or looked up in a folder of advisories.

A folder holds what OSV and Debian publish: OSV records (`*.json`, one or a list), OSV's archives of an ecosystem
(`all.zip`), Debian's security tracker (one `*.json` of all packages).
"""

import http.client
import json
import urllib.parse
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deploy.supply import versions
from deploy.supply.components import Component, normal

_BATCH = 500
_ECOSYSTEMS = {"pypi": "PyPI", "npm": "npm"}
_RELEASES = {"11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky"}
_MOST_BYTES = 256 << 20
_NONE = "none yet"


class Unreachable(Exception):
    """The source of advisories could not be asked, or knows nothing of these components."""


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """A known vulnerability of a component. `fixed`: the first version without it; empty where there is none."""

    component: Component
    id: str
    summary: str = ""
    severity: str = ""  # low, medium, high, critical; or unknown
    fixed: str = ""
    aliases: frozenset[str] = frozenset()
    url: str = ""

    @property
    def actionable(self) -> bool:
        """True if somebody can act: Debian's open ones wait for Debian."""
        return bool(self.fixed) or self.component.ecosystem != "deb"

    def __str__(self) -> str:
        found = self.component
        named = found.name if found.source in ("", found.name) else f"{found.name} (of {found.source})"
        return f"{named} {found.version}: {self.id}; fixed in: {self.fixed or _NONE}"


class Source(Protocol):
    """Source of advisories."""

    def look_up(self, components: Sequence[Component]) -> list[Vulnerability]:
        """Return the vulnerabilities of components of one ecosystem. Raises Unreachable."""
        ...


def ecosystem(component: Component) -> tuple[str, str, str]:
    """Return ecosystem, name and version of a component, as OSV has them."""
    if component.ecosystem == "deb":
        release = component.distro.partition("-")[2].partition(".")[0]
        name = f"Debian:{release}" if release else "Debian"
        return name, component.source or component.name, component.source_version or component.version
    name = normal(component.name) if component.ecosystem == "pypi" else component.name
    return _ECOSYSTEMS[component.ecosystem], name, component.version


class Service:
    """An OSV service, over HTTP."""

    def __init__(self, url: str, timeout_seconds: float = 20.0) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._timeout_seconds = timeout_seconds
        self._records: dict[str, Mapping[str, Any]] = {}

    def look_up(self, components: Sequence[Component]) -> list[Vulnerability]:
        pairs = [pair for at in range(0, len(components), _BATCH) for pair in self._asked(components[at : at + _BATCH])]
        missing = sorted({id_ for _, id_ in pairs} - self._records.keys())
        with ThreadPoolExecutor(8) as pool:
            self._records.update(zip(missing, pool.map(self._record, missing), strict=True))
        found = (vulnerability(each, self._records[id_]) for each, id_ in pairs)
        return [each for each in found if each is not None]

    def _asked(self, components: Sequence[Component]) -> Iterator[tuple[Component, str]]:
        queries: list[tuple[Component, dict[str, Any]]] = []
        for each in components:
            place, name, version = ecosystem(each)
            queries.append((each, {"package": {"ecosystem": place, "name": name}, "version": version}))
        while queries:
            answer = self._request("POST", "/v1/querybatch", {"queries": [query for _, query in queries]})
            results = answer.get("results")
            if not isinstance(results, list) or len(results) != len(queries):
                raise Unreachable(f"{self._url.netloc}: its answer is not one of OSV")
            further = []
            for (component, query), result in zip(queries, results, strict=True):
                for found in (result or {}).get("vulns", ()):
                    yield component, found["id"]
                if token := (result or {}).get("next_page_token"):
                    further.append((component, {**query, "page_token": token}))
            queries = further

    def _record(self, id_: str) -> Mapping[str, Any]:
        return self._request("GET", f"/v1/vulns/{urllib.parse.quote(id_)}")

    def _request(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        made = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = made(self._url.netloc, timeout=self._timeout_seconds)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, self._url.path.rstrip("/") + path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self._url.netloc} was not reached: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise Unreachable(f"{self._url.netloc} answered {answer.status} {answer.reason}")
        try:
            found = json.loads(text)
        except ValueError as error:
            raise Unreachable(f"{self._url.netloc}: its answer is not JSON") from error
        if not isinstance(found, dict):
            raise Unreachable(f"{self._url.netloc}: its answer is not one of OSV")
        return found


class Folder:
    """A folder of advisories. An ecosystem that it says nothing about is not looked up, and said to be so."""

    def __init__(self, folder: Path) -> None:
        self._osv: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
        self._tracker: dict[str, Mapping[str, Any]] = {}
        self._known: set[str] = set()
        files = (
            sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".zip")) if folder.is_dir() else []
        )
        if not files:
            raise Unreachable(f"{folder}: has no advisories; put OSV's or Debian's JSON there (deploy/README.md)")
        for file in files:
            for found in _read(file):
                self._take(found)

    def _take(self, found: Any) -> None:
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                continue
            if "id" in each and "affected" in each:
                if each.get("withdrawn"):
                    continue
                for affected in each["affected"]:
                    package = affected.get("package", {})
                    place, name = package.get("ecosystem", ""), package.get("name", "")
                    self._known.add(place)
                    self._osv[place, normal(name) if place == "PyPI" else name].append(each)
            elif _is_tracker(each):
                self._tracker.update(each)

    def look_up(self, components: Sequence[Component]) -> list[Vulnerability]:
        found: dict[tuple[str, str], Vulnerability] = {}
        for component in components:
            place, name, _ = ecosystem(component)
            if place not in self._known and not (component.ecosystem == "deb" and self._tracker):
                raise Unreachable(f"the folder has no advisories of {place}")
            for each in self._of(component, place, name):
                found.setdefault((component.purl, each.id), each)
        return list(found.values())

    def _of(self, component: Component, place: str, name: str) -> Iterator[Vulnerability]:
        for record in self._osv.get((place, name), ()):
            if (each := vulnerability(component, record)) is not None and affects(component, record):
                yield each
        if component.ecosystem == "deb":
            yield from _tracked(component, self._tracker.get(name, {}))


def _read(file: Path) -> Iterator[Any]:
    try:
        if file.suffix == ".json":
            yield json.loads(file.read_text())
            return
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise Unreachable(f"{file}: can't be read: {error}") from error


def _is_tracker(found: Mapping[str, Any]) -> bool:
    packages = list(found.values())[:50]
    return bool(packages) and all(
        isinstance(each, dict) and all(isinstance(one, dict) and "releases" in one for one in each.values())
        for each in packages
    )


def _tracked(component: Component, known: Mapping[str, Any]) -> Iterator[Vulnerability]:
    """Yield the vulnerabilities of a Debian package by Debian's security tracker."""
    _, name, version = ecosystem(component)
    release = _RELEASES.get(component.distro.partition("-")[2].partition(".")[0], "")
    for id_, each in known.items():
        state = each["releases"].get(release, {})
        # Debian's word for what is no security problem as Debian builds it.
        if state.get("urgency") == "unimportant" or state.get("status") not in ("open", "resolved"):
            continue
        fixed = state.get("fixed_version", "") if state["status"] == "resolved" else ""
        if fixed and versions.compare_debian(version, fixed) >= 0:
            continue
        if state["status"] == "resolved" and not fixed:
            continue
        url = f"https://security-tracker.debian.org/tracker/{id_}"
        summary = str(each.get("description", name))
        yield Vulnerability(component, id_, summary, _severity(state.get("urgency", "")), fixed, frozenset({id_}), url)


def vulnerability(component: Component, record: Mapping[str, Any]) -> Vulnerability | None:
    """Return what an OSV record says about a component; None where it was withdrawn."""
    if record.get("withdrawn"):
        return None
    later = []
    for affected in _affected(component, record):
        for range_ in affected.get("ranges", ()):
            later += [each["fixed"] for each in range_.get("events", ()) if "fixed" in each and range_["type"] != "GIT"]
    words = record.get("database_specific") or {}
    return Vulnerability(
        component,
        record["id"],
        str(record.get("summary") or record.get("details", ""))[:300],
        _severity(str(words.get("severity", ""))),
        _next(component, later),
        frozenset({record["id"], *record.get("aliases", ()), *record.get("upstream", ())}),
        f"https://osv.dev/vulnerability/{record['id']}",
    )


def affects(component: Component, record: Mapping[str, Any]) -> bool:
    """Decide if an OSV record is about a component's version. One that can't be compared is."""
    _, _, version = ecosystem(component)
    key = versions.key(component.ecosystem)
    for affected in _affected(component, record):
        if version in affected.get("versions", ()):
            return True
        for range_ in affected.get("ranges", ()):
            try:
                if range_["type"] != "GIT" and _within(key, version, range_.get("events", ())):
                    return True
            except ValueError:
                return True
    return False


def _affected(component: Component, record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    place, name, _ = ecosystem(component)
    for each in record.get("affected", ()):
        package = each.get("package", {})
        theirs = package.get("name", "")
        if package.get("ecosystem") == place and (normal(theirs) if place == "PyPI" else theirs) == name:
            yield each


def _within(key: Any, version: str, events: Iterable[Mapping[str, str]]) -> bool:
    """Decide if a version lies in a range, by OSV's own algorithm."""
    mine, inside = key(version), False

    def at(event: Mapping[str, str]) -> Any:
        text = next(iter(event.values()))
        return (text != "0", key(text) if text != "0" else mine)

    for event in sorted((each for each in events if "limit" not in each), key=at):
        ((what, text),) = event.items()
        if text != "0" and key(text) > mine:
            break
        if what == "introduced":
            inside = True
        elif what == "fixed" or (what == "last_affected" and key(text) < mine):
            inside = False
    return inside


def _next(component: Component, fixed: Iterable[str]) -> str:
    """Return the first of these versions that is later than the component's."""
    _, _, version = ecosystem(component)
    key = versions.key(component.ecosystem)
    try:
        return min((each for each in fixed if key(each) > key(version)), key=key, default="")
    except ValueError:
        return next(iter(fixed), "")


def _severity(word: str) -> str:
    known = {"moderate": "medium", "low**": "low", "medium**": "medium", "high**": "high"}
    plain = known.get(word.lower(), word.lower())
    return plain if plain in ("low", "medium", "high", "critical") else "unknown"


def distinct(found: Iterable[Vulnerability]) -> list[Vulnerability]:
    """Return one of each component's vulnerabilities that are the same under several names: the one that says most."""
    kept: list[Vulnerability] = []
    for each in sorted(found, key=lambda one: (one.component.purl, not one.fixed, one.severity == "unknown", one.id)):
        same = (one for one in kept if one.component.purl == each.component.purl and one.aliases & each.aliases)
        if next(same, None) is None:
            kept.append(each)
    return kept
