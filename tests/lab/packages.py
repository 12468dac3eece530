"""Registries of packages as a folder of files, which the lab's Internet serves: PyPI's simple index and npm's.

    made = Packages(lab.folder / "packages")
    made.wheel("server", "1.0", {"server.py": "..."}, programs={"server": "server:main"})
    made.source("old-server", "1.0")                      # no wheel
    made.npm("@scope/server", "1.2.3", {"index.js": "..."}, bin="index.js")
    made.npm_tree(Path("node_modules"), "@scope/server")   # a real one with all that it needs, each packed again

The addresses are INDEX and REGISTRY.
"""

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HOST = "packages.example.org"
INDEX, REGISTRY = f"http://{HOST}/simple/", f"http://{HOST}/npm/"
_LINK = '<a href="{href}#sha256={digest}">{name}</a><br>\n'


class Packages:
    """The files. A folder's own answer is its file `index`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wheel(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | bytes],
        *,
        programs: Mapping[str, str] | None = None,
        requires: Iterable[str] = (),
    ) -> None:
        """Add a wheel of pure Python."""
        plain = name.replace("-", "_")
        info = f"{plain}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {require}\n" for require in requires)
        scripts = "".join(f"{program} = {target}\n" for program, target in (programs or {}).items())
        contents: dict[str, str | bytes] = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}",
        }
        contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*contents, f"{info}/RECORD"))
        bytes_io = io.BytesIO()
        with zipfile.ZipFile(bytes_io, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in contents.items():
                archive.writestr(path, text)
        self.file(name, f"{plain}-{version}-py3-none-any.whl", bytes_io.getvalue())

    def source(self, name: str, version: str) -> None:
        """Add a source package whose setup would run code."""
        bytes_io = io.BytesIO()
        with tarfile.open(fileobj=bytes_io, mode="w:gz") as archive:
            _add(archive, f"{name}-{version}/setup.py", b"raise SystemExit('code of the package has run')\n")
        self.file(name, f"{name}-{version}.tar.gz", bytes_io.getvalue())

    def file(self, name: str, file: str, data: bytes) -> None:
        """Add a file of any kind to the index."""
        folder = self.folder / "simple" / name.lower().replace("_", "-")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
        with (folder / "index").open("a") as index:
            href = f"/simple/{folder.name}/{file}"
            index.write(_LINK.format(href=href, digest=hashlib.sha256(data).hexdigest(), name=file))

    def npm(self, name: str, version: str, files: Mapping[str, str | bytes], /, **manifest: Any) -> None:
        """Add a version of a package of npm."""
        described = {"name": name, "version": version, **manifest}
        bytes_io = io.BytesIO()
        with tarfile.open(fileobj=bytes_io, mode="w:gz", compresslevel=1) as archive:
            for path, data in {**files, "package.json": json.dumps(described)}.items():
                _add(archive, f"package/{path}", data.encode() if isinstance(data, str) else data)
        folder = self.folder / "npm" / name
        tarball = f"{name.rpartition('/')[2]}-{version}.tgz"
        (folder / "-").mkdir(parents=True, exist_ok=True)
        (folder / "-" / tarball).write_bytes(bytes_io.getvalue())
        index = folder / "index"
        listed = json.loads(index.read_text()) if index.exists() else {"name": name, "dist-tags": {}, "versions": {}}
        integrity = base64.b64encode(hashlib.sha512(bytes_io.getvalue()).digest()).decode()
        dist = {"tarball": f"{REGISTRY}{name}/-/{tarball}", "integrity": f"sha512-{integrity}"}
        listed["versions"][version] = {**described, "dist": dist}
        listed["dist-tags"]["latest"] = version
        index.write_text(json.dumps(listed))

    def npm_tree(self, modules: Path, name: str) -> str:
        """Add a package of an installed tree and all that it needs, each packed again; return its version."""
        names, done = [name], set[str]()
        version = str(json.loads((modules / name / "package.json").read_text())["version"])
        parents = sorted(path.parent for path in modules.rglob("package.json"))
        while names:
            next_ = names.pop()
            if next_ in done:
                continue
            done.add(next_)
            for folder in (parent for parent in parents if str(parent).endswith(f"/node_modules/{next_}")):
                described = json.loads((folder / "package.json").read_text())
                described.pop("name")
                names += described.get("dependencies", {})
                paths = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
                own_paths = (path for path in paths if "node_modules" not in path.parts and str(path) != "package.json")
                files = {str(own_path): (folder / own_path).read_bytes() for own_path in own_paths}
                self.npm(next_, described.pop("version"), files, **described)
        return version


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(data), 0o644
    archive.addfile(entry, io.BytesIO(data))
