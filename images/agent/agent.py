"""Entry point: `python3.11 -I -S agent.py [arguments] [-- COMMAND ...]`."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0] or ".")  # -I leaves the program's own folder out

from paddock_agent.main import main

sys.exit(main(sys.argv[1:]))
