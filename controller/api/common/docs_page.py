"""/docs: the OpenAPI description as one page that needs no script, no style sheet and no other host. Pure."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any

Json = Mapping[str, Any]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_STYLE = """
:root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto;
padding: 0 1rem } code, pre { font-family: ui-monospace, monospace; font-size: .9em } pre { overflow-x: auto; padding:
.6rem; border: 1px solid #8886; border-radius: .3rem } details { border-bottom: 1px solid #8884; padding: .3rem 0 }
summary { cursor: pointer } .method { display: inline-block; width: 5rem; font-weight: 600 } table { border-collapse:
collapse } td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
"""


def page(description: Json) -> str:
    """Return the page: operations by tag, each with its parameters, bodies and answers."""
    operations = [
        (str(operation.get("tags", ["other"])[0]), path, method, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    operations.sort(key=lambda entry: entry[0].lower())
    title = f"{description['info']['title']} {description['info']['version']}"
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}: the API</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>',
        f"<h1>{escape(title)}: the API</h1>",
        '<p>For clients and generators: <a href="/openapi.json">/openapi.json</a>.</p>',
    ]
    for tag, group in groupby(operations, key=lambda entry: entry[0]):
        parts.append(f"<h2>{escape(tag)}</h2>")
        parts += [line for _, path, method, operation in group for line in _operation(path, method, operation)]
    return "\n".join([*parts, "</html>"])


def _operation(path: str, method: str, operation: Json) -> Iterator[str]:
    name = f'<span class="method">{escape(method.upper())}</span>'
    yield f'<details id="{escape(operation["operationId"])}"><summary>{name} <code>{escape(path)}</code></summary>'
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    if rows := [_parameter(parameter) for parameter in operation.get("parameters", ())]:
        yield "<table><tr><th>Parameter<th>In<th>Meaning</tr>" + "".join(rows) + "</table>"
    yield from _bodies("Body", operation.get("requestBody", {}))
    for code, answer in operation["responses"].items():
        if code.startswith("2"):
            yield from _bodies(f"{code}: {answer.get('description', '')}", answer)
    errors = [code for code in operation["responses"] if not code.startswith("2")]
    yield f"<p>Errors: {escape(', '.join(errors))}, each with a Status.</p></details>"


def _parameter(parameter: Json) -> str:
    needed = " (required)" if parameter.get("required") else ""
    cells = (
        f"<code>{escape(parameter['name'])}</code>{needed}",
        escape(parameter["in"]),
        escape(parameter.get("description", "")),
    )
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"


def _bodies(title: str, body: Json) -> Iterator[str]:
    for type_, media in body.get("content", {}).items():
        yield f"<p>{escape(title)} <code>{escape(type_)}</code></p>"
        if "example" in media:
            example = media["example"]
            text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
            yield f"<pre>{escape(text)}</pre>"
