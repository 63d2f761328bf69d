"""`/docs`: the reference of the REST interface, written from its OpenAPI. It loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

router = APIRouter()

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .2rem .6rem .2rem 0;
vertical-align: top; border-bottom: 1px solid #8884; } summary { cursor: pointer; padding: .3rem 0; }
.verb { display: inline-block; min-width: 4.5rem; font-weight: bold; }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #e6e6e6; } a { color: #8ab4f8; } }
"""


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """Show the reference."""
    return HTMLResponse(
        page(request.app.openapi()),
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )


def page(schema: Mapping[str, Any]) -> str:
    """Return the page for an OpenAPI document."""
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    body = "".join(_sections(schema))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>{title}</h1><p>Errors are <code>{{"error": {{"type", "message", "details"}}}}</code>. '
        f'For programs: <a href="openapi.json">openapi.json</a>.</p>{body}</body></html>'
    )


def _sections(schema: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, verb, route in routes(schema):
        groups.setdefault(route.get("tags", ["other"])[0], []).append(_route(path, verb, route))
    for name, found in groups.items():
        yield f"<h2>{escape(name)}</h2>{''.join(found)}"
    yield "<h2>records</h2>"
    for name, record in sorted(schema.get("components", {}).get("schemas", {}).items()):
        yield (
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
            f"<p>{escape(record.get('description', ''))}</p>{_fields(record)}</details>"
        )


def routes(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield every route of an OpenAPI document: path, verb, and what is said of it."""
    for path, verbs in schema["paths"].items():
        for verb, route in verbs.items():
            yield path, verb.upper(), route


def _route(path: str, verb: str, route: Mapping[str, Any]) -> str:
    told = [f"<p>{escape(route.get('description', ''))}</p>"]
    if parameters := route.get("parameters"):
        rows = (
            f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
            f"<td>{shape(each['schema'])}</td><td>{escape(each.get('description', ''))}</td></tr>"
            for each in parameters
        )
        told.append(f"<table><tr><th>name</th><th>in</th><th>type</th><th></th></tr>{''.join(rows)}</table>")
    body = route.get("requestBody", {}).get("content", {})
    told += [f"<p>Body: {shape(content['schema'])}</p>" for content in body.values()]
    for status, answer in route["responses"].items():
        for kind, content in answer.get("content", {}).items():
            told.append(
                f"<p>{escape(status)} <code>{escape(kind)}</code>: {shape(content.get('schema', {}))}</p>"
            )
    return (
        f'<details><summary><span class="verb">{verb}</span> <code>{escape(path)}</code> '
        f"{escape(route.get('summary', ''))}</summary>{''.join(told)}</details>"
    )


def _fields(record: Mapping[str, Any]) -> str:
    needed = record.get("required", ())
    rows = (
        f"<tr><td><code>{escape(name)}</code>{'' if name in needed else ' (optional)'}</td>"
        f"<td>{shape(field)}</td><td>{escape(field.get('description', ''))}</td></tr>"
        for name, field in record.get("properties", {}).items()
    )
    return f"<table>{''.join(rows)}</table>"


def shape(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in a few words, with links to records."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    if found := schema.get("anyOf"):
        return " or ".join(shape(each) for each in found)
    if words := schema.get("enum"):
        return ", ".join(f"<code>{escape(str(word))}</code>" for word in words)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {shape(schema.get('items', {}))}"
    inner = schema.get("additionalProperties")
    return f"map of {shape(inner)}" if isinstance(inner, Mapping) else escape(str(kind))
