#!/usr/bin/env bash
# Compares some 120 cells of notebooks in code contexts with ipykernel (tests/notebooks). Needs no engine; some minutes.
#   deploy/notebooks.sh [pytest's arguments]...
# Both kernels are in .cache/notebooks, an environment with the packages of paddock/python:1 and paddock/data:1 as pinned,
# and ipykernel beside them.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

"$ROOT/deploy/venv.sh" --dev
place=$ROOT/.cache/notebooks
if [ ! -e "$place/ready" ] || [ "$ROOT/images/data/requirements.lock" -nt "$place/ready" ]; then
    rm -rf "$place"
    "$PADDOCK_VENV/bin/python" -P -m venv "$place"
    progress "the kernels" "$place/bin/pip" install --quiet --disable-pip-version-check \
        -r "$ROOT/images/python/requirements.lock" -r "$ROOT/images/data/requirements.lock" ||
        die "the packages could not be fetched." "The output above says why."
    progress "ipykernel" "$place/bin/pip" install --quiet --disable-pip-version-check ipykernel ||
        die "ipykernel could not be fetched." "The output above says why."
    touch "$place/ready"
fi
cd "$ROOT"
PADDOCK_NOTEBOOKS=$place exec "$PADDOCK_VENV/bin/python" -m pytest -q -n 0 -p no:cacheprovider tests/notebooks "$@"
