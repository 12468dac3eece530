"""Compare the panel's vendored files with npm's packages, or take them anew.

python vendored.py --list FOLDER             NAME@VERSION of each package of FOLDER/manifest.json
python vendored.py --compare FOLDER PACKED   every file is as in its package, and as the manifest's hash says
python vendored.py --write FOLDER PACKED     takes the files, and writes the hashes
"""

import hashlib
import json
import sys
import tarfile
from pathlib import Path


def main(how: str, folder: Path, packed: Path = Path()) -> int:
    manifest = folder / "manifest.json"
    packages = json.loads(manifest.read_text())["packages"]
    if how == "--list":
        print("\n".join(f"{each['name']}@{each['version']}" for each in packages))
        return 0
    wrong = []
    for each in packages:
        archive = packed / f"{each['name'].lstrip('@').replace('/', '-')}-{each['version']}.tgz"
        with tarfile.open(archive) as opened:
            found = {to: read(opened, f"package/{name}") for name, to in each["files"].items()}
        hashes = {to: hashlib.sha256(data).hexdigest() for to, data in found.items()}
        if how == "--write":
            each["sha256"] = hashes
            for to, data in found.items():
                (folder / to).write_bytes(data)
            continue
        wrong += [to for to, data in found.items() if (folder / to).read_bytes() != data]
        wrong += [to for to, hash_ in hashes.items() if each["sha256"].get(to) != hash_]
    if how == "--write":
        manifest.write_text(json.dumps({"packages": packages}, indent=2) + "\n")
        print(f"    {sum(len(each['files']) for each in packages)} files written")
        return 0
    for to in sorted(set(wrong)):
        print(f"    {to}: differs from its package, or from the manifest; run: make vendor ARGS=--write")
    if not wrong:
        print(f"    {sum(len(each['files']) for each in packages)} files are as in their packages")
    return int(bool(wrong))


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, name
    return file.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(Path, sys.argv[2:])))
