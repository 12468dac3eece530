#!/usr/bin/env bash
# The last part of `make up`: applies the first sandbox, waits until it is ready, shows it and what to try next.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

spec=${PADDOCK_QUICKSTART_SPEC:-$ROOT/specs/quickstart.yaml}
command=${PADDOCK_VENV#"$PWD/"}/bin/paddock # as a person in this folder would type it

step "Applying ${spec#"$PWD/"}"
paddock apply -f "$spec"
paddock wait --for=condition=Ready --timeout=120s sandbox/quickstart ||
    die "sandbox quickstart is not ready." "For the reason: $command describe sandbox quickstart    The daemon's log: $PADDOCK_STATE_DIR/daemon.log"
say
paddock get sandboxes
cat <<END

It runs. Try next:
  $command exec quickstart -- python3 -c 'print("hello from the sandbox")'
  $command logs quickstart
  docker kill \$(docker ps -q --filter label=paddock.name=quickstart)     # by hand, behind its back ...
  sleep 2; $command get sandboxes                       # ... is repaired
  http://127.0.0.1:$PADDOCK_METRICS_PORT/metrics                           # what Prometheus scrapes
  make down                                                # stops the daemon, leaves the sandboxes
  make clean                                               # removes everything that make up made
END
