#!/usr/bin/env bash
# What can be said about the code without running it.
#   deploy/check.sh [--fix]      --fix formats, and repairs what the linter can
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

"$ROOT/deploy/venv.sh" --dev
cd "$ROOT"
bin=$PADDOCK_VENV/bin
rc=0
if [ "${1:-}" = --fix ]; then
    "$bin/ruff" check --fix || rc=1
    "$bin/ruff" format
    exit "$rc"
fi
# All of them run, so that one look shows everything.
step "ruff" && { "$bin/ruff" check && "$bin/ruff" format --check; } || rc=1
step "mypy" && "$bin/mypy" || rc=1
if have shellcheck; then
    step "shellcheck" && shellcheck -x deploy/*.sh deploy/lib/*.sh images/*.sh .ci/run || rc=1
else
    say "shellcheck is not installed: the shell scripts are not checked (apt-get install shellcheck)"
fi
exit "$rc"
