#!/usr/bin/env bash
# What can be said about the code without running it: ruff, mypy, import contracts, and shellcheck where it is installed.
#   deploy/check.sh [--fix]      --fix formats, and repairs what the linter can
# `make test` runs it beside the tests.
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
step "import contracts" && "$bin/lint-imports" || rc=1
step "mypy" && "$bin/mypy" || rc=1
step "shell scripts" && for script in deploy/*.sh deploy/lib/*.sh images/*.sh .ci/run; do bash -n "$script" || rc=1; done
if have shellcheck; then
    step "shellcheck" && shellcheck -x deploy/*.sh deploy/lib/*.sh images/*.sh .ci/run || rc=1
else
    say "shellcheck is not installed: the shell scripts are only parsed (apt-get install shellcheck)"
fi
exit "$rc"
