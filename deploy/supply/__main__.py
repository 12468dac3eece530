"""`python -m deploy.supply sbom|audit`: what `make sbom`, `make audit` and images/build.sh call."""

import argparse
import os
import sys
from pathlib import Path

from deploy.supply import sources

_FOLDER = sources.ROOT / ".cache" / "sbom"
_OSV = "https://api.osv.dev"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deploy.supply", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    bills = commands.add_parser("sbom", help="write bills of materials (CycloneDX)")
    bills.add_argument("--folder", type=Path, default=_FOLDER, help="where to; default: .cache/sbom")
    audit = commands.add_parser("audit", help="look for known vulnerabilities")
    audit.add_argument("--db", type=Path, metavar="FOLDER", help="advisories of OSV or Debian, instead of the network")
    audit.add_argument("--sarif", type=Path, metavar="FILE", help="write the findings as SARIF 2.1.0, too")
    audit.add_argument("--all", action="store_true", help="list what Debian has no fix for, too")
    audit.add_argument("--apt", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    for each in (bills, audit):
        each.add_argument("images", nargs="*", metavar="IMAGE", help="default: all of Paddock's on this engine")
    given = parser.parse_args(words)
    if given.command == "sbom":
        return _sbom(given)
    return _audit(given)


def _sbom(given: argparse.Namespace) -> int:
    from deploy.supply import sbom
    from deploy.supply.image import NoImage

    try:
        return sbom.run(given.images, given.folder)
    except NoImage as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _audit(given: argparse.Namespace) -> int:
    from controller.version import VERSION
    from deploy.supply import audit
    from deploy.supply.advisories import Folder, Service, Source, Unreachable

    source: Source
    try:
        source = Folder(given.db) if given.db else Service(os.environ.get("PADDOCK_AUDIT_OSV") or _OSV)
    except Unreachable as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    apt = None if given.db else given.apt
    options = audit.Options(tuple(given.images), apt, given.all, given.sarif)
    return audit.run(source, options, VERSION)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
