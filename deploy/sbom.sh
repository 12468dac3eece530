#!/usr/bin/env bash
# Bills of materials (CycloneDX JSON): of the images on this engine, of the lock files, and of the vendored JavaScript.
#   deploy/sbom.sh [--folder FOLDER] [IMAGE...]     (default: .cache/sbom; all of Paddock's images that are there)
# images/build.sh writes that of each image when it has built it.
# Settings: PYTHON.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

if [ "${1:-}" = --folder ] && [ $# -gt 1 ]; then
    folder=$(realpath -m -- "$2")
    shift 2
    set -- --folder "$folder" "$@"
fi
cd "$ROOT"
exec "${PYTHON:-python3}" -m deploy.supply sbom "$@"
