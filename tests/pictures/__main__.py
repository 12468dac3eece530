"""`python -m tests.pictures [FOLDER] [--minutes 5] [--width 1600]`: draw the dashboards of a busy Paddock into FOLDER.

PNG where a Chromium is installed, else HTML."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.deploy.test_grafana import STORED
from tests.lab.internet import impossible
from tests.pictures.ask import Asker, Window
from tests.pictures.draw import WIDTH, page
from tests.pictures.site import SCRAPE_SECONDS, site

# That board is for a few of them.
CHOSEN = {"sandbox.json": {"sandbox": "reads|hoards|talks"}}
FOLDER = Path(".cache/dashboards")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def draw(url: str, folder: Path, seconds: float, width: int = WIDTH) -> None:
    """Draw the dashboards as the Prometheus at `url` fills them, over the last so many seconds."""
    end = time.time()
    window = Window(end - seconds, end, SCRAPE_SECONDS)
    for name, text in STORED.items():
        created, height, silent = page(json.loads(text), Asker(url, window, CHOSEN.get(name, {})), width)
        file = folder / name.replace(".json", ".html")
        file.write_text(created)
        print(f"{_picture(file, width, height)}" + (f": nothing to show in {', '.join(silent)}" if silent else ""))


def _picture(page_file: Path, width: int, height: int) -> Path:
    browser = next((which for name in _BROWSERS if (which := shutil.which(name))), None)
    if browser is None:
        return page_file
    picture = page_file.with_suffix(".png")
    # --no-sandbox: a browser refuses to run as root with its own; the page is ours and names nothing outside.
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={picture}"]
    requested = [*command, f"--window-size={width},{height}", page_file.as_uri()]
    subprocess.run(requested, check=True, capture_output=True, timeout=120)
    return picture


def main() -> None:
    argument_parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    argument_parser.add_argument(
        "folder", type=Path, nargs="?", default=FOLDER, help=f"where the pictures go ({FOLDER})"
    )
    argument_parser.add_argument("--minutes", type=float, default=5, help="of load before they are drawn")
    argument_parser.add_argument("--width", type=int, default=WIDTH, help=f"of the pages, in pixels ({WIDTH})")
    args = argument_parser.parse_args()
    args.folder = args.folder.resolve()  # a browser takes whole addresses only
    if impossible():
        sys.exit(f"no pictures can be drawn here: {impossible()}")
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, site(Path(scratch)) as (daemon, requested):
        print(f"drawn in {args.minutes:g} minutes", flush=True)
        pause, until = threading.Event(), time.monotonic() + args.minutes * 60
        while time.monotonic() < until:
            daemon.paddock("get", "sandboxes", "-A")  # the API is asked, too
            pause.wait(5)
        requested.host.within(lambda: draw(requested.url, args.folder, args.minutes * 60, args.width))


if __name__ == "__main__":
    main()
