"""Prints the id of the store in the given state folder: what the label `paddock.instance` of our containers says.

Standard library only, and read-only: it has to work when the daemon does not.
"""

import sqlite3
import sys
from pathlib import Path


def main(state_dir: str) -> int:
    file = Path(state_dir) / "paddock.db"
    if not file.exists():
        return 1
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        found = database.execute("SELECT instance_id FROM meta").fetchone()
        database.close()
    except sqlite3.Error as error:
        print(f"{file}: {error}", file=sys.stderr)
        return 1
    if not found or not found[0]:
        return 1
    print(found[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
