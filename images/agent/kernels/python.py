"""Kernel of a Python context: `python3 python.py DESCRIPTOR`, under the image's own interpreter, from 3.8 on."""

import sys

sys.path[0] = __file__.rpartition("/")[0]
import paddock_kernel.main  # noqa: E402

sys.path[0] = ""  # what code imports is looked for in its own folder

if __name__ == "__main__":
    paddock_kernel.main.main(int(sys.argv[1]))
