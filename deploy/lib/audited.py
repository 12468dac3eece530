"""What pip-audit found, in words. Ends with 0: every package was looked up and none is known; 1: some are; 3: blind.

pip-audit itself calls it a success when it could look up no package at all.

    python audited.py NAME-OF-THE-LOCK-FILE PIP-AUDITS-JSON
"""

import json
import sys
from pathlib import Path


def main(lock: str, file: Path) -> int:
    try:
        packages = json.loads(file.read_text())["dependencies"]
    except (OSError, ValueError, KeyError):
        return 3
    unseen = [each["name"] for each in packages if "skip_reason" in each]
    weak = [each for each in packages if each.get("vulns")]
    for each in weak:
        for known in each["vulns"]:
            better = ", ".join(known.get("fix_versions", ())) or "none yet"
            print(f"    {each['name']} {each['version']}: {known['id']}; mended in: {better}")
    if weak:
        print("    take newer ones: make lock ARGS=--upgrade")
    print(f"    {lock}: {len(packages) - len(unseen)} packages looked up, {len(weak)} known, {len(unseen)} not found")
    if weak:
        return 1
    return 3 if unseen or not packages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
