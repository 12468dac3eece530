"""A scraper that may ask for any address, and reaches the hosts of its list only.

    python scraper.py http://git.example.org/ http://tracker.example.net/

The host of the first address is allowed, and no other: what a page or a model makes the scraper ask elsewhere is
refused outside of the sandbox, where its code can change nothing.
"""

import json
import sys
from urllib.parse import urlsplit

from paddock import Paddock

SCRAPER = """
import json, sys, urllib.error, urllib.request

pages = {}
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            pages[url] = answer.read(1_000_000).decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        pages[url] = f"{error.code}: {error.read(1000).decode().strip()}"
    except OSError as error:
        pages[url] = str(error)
print(json.dumps(pages))
"""


def scrape(paddock: Paddock, urls: list[str]) -> dict[str, str]:
    """Return the text of each page, or why there is none."""
    host = urlsplit(urls[0]).hostname or ""
    # With a list of hosts the level is development: a proxy that knows the list is the only way out.
    with paddock.sandboxes.create(allowed_hosts=[host], lifetime=600) as sandbox:
        answer = sandbox.run_code(SCRAPER, args=urls, timeout=120, check=True)
        pages: dict[str, str] = json.loads(answer.stdout)
        return pages


if __name__ == "__main__":
    with Paddock() as paddock:
        for url, text in scrape(paddock, sys.argv[1:]).items():
            print(url, "->", text[:200])
