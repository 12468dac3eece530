"""Audit of what Paddock stands on: images, locks and vendored files, against known vulnerabilities.

Exit code 0: all was looked up, and nothing that anybody could act on is known; 1: something is; 3: something could not
be looked up, which is never taken for good.
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.supply import image, sarif, sources
from deploy.supply.advisories import Source, Unreachable, Vulnerability, distinct
from deploy.supply.components import Component
from deploy.supply.image import NoImage

REMEDIES = {
    "lock": "take newer ones: make lock ARGS=--upgrade",
    "package-lock.json": "take newer ones: tests/mcp/README.md, Pins",
    "manifest.json": "take newer ones: name the versions in the manifest, then make vendor ARGS=--write",
}
_SIMULATED = "command -v apt-get >/dev/null || exit 0; apt-get -q update >&2 && apt-get -q --simulate dist-upgrade"


@dataclass(slots=True)
class Report:
    """Findings, each with its file, and what could not be looked up."""

    findings: list[tuple[str, Vulnerability]] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        if self.outdated or any(each.actionable for _, each in self.findings):
            return 1
        return 3 if self.blind else 0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one audit."""

    images: tuple[str, ...] = ()  # none: all that are on this engine
    apt: Path | None = None  # the host's way to Debian's packages (deploy/lib/debian.sh); None: not compared
    show_all: bool = False  # also what Debian has not fixed yet
    sarif: Path | None = None


def run(source: Source, options: Options, version: str) -> int:
    """Audit, print what was found, and return the exit code."""
    report = Report()
    for file in sources.FILES:
        components = sources.of_file(file)
        place = {each.purl: each.places[0] for each in components}
        found = looked_up(source, components, report, file)
        _show(f"{file}: {len(components)} packages", found, options)
        if found:
            print(f"    {next(words for end, words in REMEDIES.items() if file.endswith(end))}")
        report.findings += [(place[each.component.purl], each) for each in found]
    _images(source, options, report)
    for each in report.blind:
        print(f"warning: {each}", file=sys.stderr)
    if options.sarif:
        options.sarif.write_text(sarif.document(report.findings, report.blind, version))
    _conclude(report)
    return report.exit_code


def looked_up(source: Source, components: Iterable[Component], report: Report, what: str) -> list[Vulnerability]:
    """Return the vulnerabilities of components, one ecosystem after the other. What is unreachable becomes blind."""
    by_kind: dict[str, list[Component]] = defaultdict(list)
    for each in components:
        # What Debian brings is Debian's to fix, and its advisories name Debian's versions.
        if each.ecosystem != "file" and not each.owner:
            by_kind[each.ecosystem].append(each)
    found: list[Vulnerability] = []
    for each in by_kind.values():
        try:
            found += source.look_up(each)
        except Unreachable as error:
            report.blind.append(f"{what}: {len(each)} packages were not looked up: {error}")
    return distinct(found)


def _images(source: Source, options: Options, report: Report) -> None:
    required = options.images or tuple(map(sources.tag, sources.UP))
    named = options.images or tuple(map(sources.tag, sources.images()))
    holders: dict[str, list[str]] = defaultdict(list)
    components: dict[str, Component] = {}
    for name in named:
        try:
            read = image.read(name)
        except NoImage as error:
            if name in required:
                report.blind.append(f"{name} was not looked at: {error}; images/build.sh builds it")
            continue
        for each in read.components:
            holders[each.purl].append(name)
            components.setdefault(each.purl, each)
        if options.apt:
            newer(name, options.apt, report)
    if not components:
        return
    found = looked_up(source, components.values(), report, "images")
    count = len({name for each in holders.values() for name in each})
    _show(f"{count} images: {len(components)} components", found, options, lambda each: holders[each.component.purl])
    if any(each.actionable for each in found):
        print("    rebuild them: images/build.sh --force NAME...")
    report.findings += [(sources.recipe(holders[each.component.purl][0]), each) for each in found]


def newer(name: str, apt: Path, report: Report) -> None:
    """Report what Debian has newer than an image, in its own release: security updates are nearly all of it."""
    line = ["docker", "run", "--rm", "--user", "0", "--network", "host", "--volume", f"{apt}:/host-apt:ro"]
    line += ["--env", "APT_CONFIG=/host-apt/apt.conf", "--entrypoint", "sh", name, "-c", _SIMULATED]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode in (126, 127):  # it has no shell, and so no apt
        return
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [""]
        report.blind.append(f"{name}: Debian's lists could not be fetched: {said[-1]}")
        return
    found = [each.removeprefix("Inst ") for each in done.stdout.splitlines() if each.startswith("Inst ")]
    for each in found:
        print(f"    newer in Debian: {each}")
    if found:
        report.outdated.append(name)
        recipe = sources.recipe(name).split("/")[1]
        print(f"    rebuild {name} and the images based on it: images/build.sh --force {recipe}")


def _show(
    what: str,
    found: Sequence[Vulnerability],
    options: Options,
    holders: Callable[[Vulnerability], list[str]] | None = None,
) -> None:
    open_ = [each for each in found if not each.actionable]
    print(f"==> {what}; {len(found) - len(open_)} known vulnerabilities, {len(open_)} more without a fix yet")
    for each in found:
        if each.actionable or options.show_all:
            print(f"    {each}" + (f" (in {', '.join(holders(each))})" if holders else ""))
    if open_ and not options.show_all:
        print("    those without a fix are listed by make audit ARGS=--all")


def _conclude(report: Report) -> None:
    if report.exit_code == 1:
        print("error: known vulnerabilities were found: see above.", file=sys.stderr)
    elif report.blind:
        print("No known vulnerabilities, but some checks were skipped: see the warnings.")
    else:
        print("No known vulnerabilities.")
