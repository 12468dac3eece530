"""A web preview: start an app in a sandbox, and print a link to it that a colleague can open, until Ctrl-C.

    python web_preview.py [FOLDER]

The link is signed, and good for an hour; no port of this machine is opened for the app. `paddock open NAME PORT` gives
such a link by the command line.
"""

import sys
from contextlib import suppress

from paddock import Paddock

HOUR = 3600
PORT = 8000
SERVER = ["python3", "-u", "-m", "http.server", str(PORT), "--directory", "app"]  # or `npm run dev`


def main(folder: str) -> None:
    """Serve the folder until interrupted."""
    with Paddock() as paddock, paddock.sandboxes.create(memory="256Mi", lifetime=HOUR, keep_running=True) as sandbox:
        sandbox.files.mkdir("app")
        sandbox.files.upload(f"{folder}/.", "app")
        with sandbox.start(SERVER) as server:
            with sandbox.proxy(PORT, timeout=30) as http:  # a preview of what does not work is none
                http.get("/").raise_for_status()
            print(f"open {sandbox.preview_link(PORT, expires=HOUR).url}", flush=True)
            for output in server:  # its log; leaving the block ends it
                print(output.text, end="", flush=True)
    print(f"the app ended with exit code {server.exit_code}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1] if len(sys.argv) > 1 else ".")
