"""Pages of previews that are not a program's: why there is none to see, in words."""

import html

from starlette.responses import HTMLResponse, PlainTextResponse, Response

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;\
margin:15vh auto;padding:0 1rem}}h1{{font-size:1.3rem}}</style><h1>{title}</h1><p>{text}</p></html>
"""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}


def page(code: int, title: str, text: str, *, for_people: bool, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of the daemon's own: a page for people, a line for programs."""
    more = {**_HEADERS, **(headers or {})}
    if not for_people:
        return PlainTextResponse(f"{title}: {text}\n", code, more)
    return HTMLResponse(_PAGE.format(title=html.escape(title), text=html.escape(text)), code, more)
