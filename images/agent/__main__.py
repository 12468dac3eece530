"""Entry point: `python -I -S images/agent [arguments] [-- COMMAND ...]`."""

import sys

from paddock_agent.main import main

sys.exit(main(sys.argv[1:]))
