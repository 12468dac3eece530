"""Registration of a runtime in the settings of the Docker Engine.

    python3 deploy/lib/runtime.py FILE NAME PATH

Prints `added` if the file has it now and had it not; what else is in the file stays. Exits with 1 and says why if the
file is not one that can be extended. Needs nothing but Python.
"""

import json
import os
import sys
from pathlib import Path


def register(file: Path, name: str, path: str) -> bool:
    """Add the runtime unless one of that name is there; return whether it was added. Raises ValueError, OSError.

    A link stays one: the file that it points to is extended.
    """
    file = file.resolve()
    settings = json.loads(file.read_text() or "{}") if file.exists() else {}
    runtimes = settings.setdefault("runtimes", {}) if isinstance(settings, dict) else None
    if not isinstance(runtimes, dict):
        raise ValueError("not the settings of an engine")
    if name in runtimes:
        return False
    runtimes[name] = {"path": path}
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".paddock-new")
    new.write_text(json.dumps(settings, indent=4) + "\n")
    if file.exists():
        new.chmod(file.stat().st_mode & 0o777)
        os.chown(new, file.stat().st_uid, file.stat().st_gid)
    new.replace(file)
    return True


if __name__ == "__main__":
    file, name, path = Path(sys.argv[1]), *sys.argv[2:4]
    try:
        print("added" if register(file, name, path) else "there")
    except (OSError, ValueError) as error:
        sys.exit(f'{file}: {error}; add {{"runtimes": {{"{name}": {{"path": "{path}"}}}}}} to it')
