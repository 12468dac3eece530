"""Questions of deploy/install.sh that the installed Paddock's settings answer. Run by its interpreter.

installed.py CONFIG socket       print the path of the daemon's socket
installed.py CONFIG save FILE    copy the embedded store, in use or not, to FILE, and print that (no store: nothing)
"""

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from controller.settings import load_settings


def save(url: str, target: Path) -> None:
    scheme, _, name = url.partition(":///")
    if not scheme.startswith("sqlite") or not Path(name).exists():
        return
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with (
        closing(sqlite3.connect(f"{Path(name).as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
    print(target)


def main(config: str, what: str, *words: str) -> None:
    settings = load_settings(config if Path(config).exists() else None)
    if what == "socket":
        print(settings.socket)
    else:
        save(settings.database(), Path(words[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
