"""Writes docs/rest.md and its Chinese twin from the OpenAPI of the server.

python -m tests.docs.rest_page
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from tests.support.pages import DOCS

from ray_multicluster_scheduler.server.app import routes_alone
from ray_multicluster_scheduler.server.error_responses import STATUS

HEADS = {
    "rest.md": """\
# REST

The server's own interface, below `/api/v1` of [`raymc serve`](server.md). Bodies and answers are JSON; times
are seconds since the epoch; what is unknown is `null`. With tokens, each request has
`Authorization: Bearer TOKEN`, and each route wants the role that is named with it ([security](security.md)).
How to use it from a shell: [with curl](how-to/curl.md). A running server shows the same at `/docs`, and for
programs at `/openapi.json`. This page is written from the routes.

Lists are cut into pages: `next_cursor` of an answer is `cursor` of the next question. Whoever repeats a
submission whose answer was lost gives it a `submission_id` or an `idempotency_key`: it makes no second job.

**Streams** are server-sent events. When the server stops, they end; whoever connects again with the header
`Last-Event-ID` misses nothing. The log as plain text has no ids: there the last chunk is missing when the
server stopped, and complete when the job has ended.

""",
    "rest.zh-CN.md": """\
# REST 接口

服务器自己的接口，在 [`raymc serve`](server.zh-CN.md) 的 `/api/v1` 之下。
请求与回答都是 JSON；时间是自纪元以来的秒数；未知的值是 `null`。
启用令牌之后，每个请求都要带 `Authorization: Bearer TOKEN`，
每条路由要求的角色写在它旁边（[安全](security.zh-CN.md)）。
在 shell 中的用法见[用 curl](how-to/curl.zh-CN.md)。
运行中的服务器在 `/docs` 显示同样的内容，供程序使用的在 `/openapi.json`。
本页由路由生成，因此各条说明是英文的。

列表是分页的：回答中的 `next_cursor` 就是下一次提问的 `cursor`。
若提交之后没有收到回答而要重发，请给出 `submission_id` 或 `idempotency_key`：
不会产生第二个作业。

**流**是 server-sent events。服务器停止时流就结束；
带着 `Last-Event-ID` 头重新连接就不会漏掉任何内容。
纯文本的日志没有编号：服务器停止时缺少最后一个分块，作业结束时则是完整的。

""",
}
WORDS = {
    "rest.md": {"errors": "Errors", "records": "Records", "role": "role", "status": "status"},
    "rest.zh-CN.md": {"errors": "错误", "records": "记录", "role": "角色", "status": "状态码"},
}
SHOWN = ("/api/v1/", "/healthz", "/readyz")


def page(name: str) -> str:
    """Return the text of a page."""
    app = routes_alone()
    schema, roles, words = app.openapi(), dict(_roles(app)), WORDS[name]
    groups: dict[str, list[str]] = {}
    for path, verbs in schema["paths"].items():
        if path.startswith(SHOWN):
            for verb, route in verbs.items():
                section = _route(path, verb.upper(), route, roles.get((path, verb.upper())), words)
                groups.setdefault(route.get("tags", ["other"])[0], []).append(section)
    parts = [f"## {tag.capitalize()}\n\n" + "\n".join(sections) for tag, sections in groups.items()]
    shape = '`{"error": {"type": "JobNotFound", "message": "...", "details": {...}}}`'
    rows = "".join(
        f"| `{kind.__name__}` | {status} |\n" for kind, status in sorted(STATUS.items(), key=_by_name)
    )
    parts.append(f"## {words['errors']}\n\n{shape}\n\n| type | {words['status']} |\n|---|---|\n{rows}")
    parts.append(f"## {words['records']}\n\n" + "\n".join(_records(schema)))
    return HEADS[name] + "\n".join(parts)


def _by_name(row: tuple[type[Exception], int]) -> str:
    return row[0].__name__


def _roles(app: Any) -> Iterator[tuple[tuple[str, str], str]]:
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute):
            role = next(_needed(route.dependant), None)
            for verb in route.methods if role else ():
                yield (context.path, verb), role


def _needed(dependant: Dependant) -> Iterator[str]:
    for each in dependant.dependencies:
        if (role := getattr(each.call, "role", None)) is not None:
            yield role.word
        yield from _needed(each)


def _route(path: str, verb: str, route: Mapping[str, Any], role: str | None, words: Mapping[str, str]) -> str:
    told = [
        f"### `{verb} {path}`\n",
        route["summary"] + (f" ({words['role']} `{role}`).\n" if role else ".\n"),
    ]
    if text := route.get("description"):
        told.append(text + "\n")
    if parameters := [each for each in route.get("parameters", ()) if each["in"] != "path"]:
        rows = "".join(
            f"| `{each['name']}` | {_shape(each['schema'])} | {each.get('description', '')} |\n"
            for each in parameters
        )
        told.append(f"| {parameters[0]['in']} | | |\n|---|---|---|\n{rows}")
    body = [_shape(content["schema"]) for content in route.get("requestBody", {}).get("content", {}).values()]
    answers = [
        f"{status} {_shape(content.get('schema', {})) if kind == 'application/json' else f'`{kind}`'}"
        for status, answer in route["responses"].items()
        if status != "default"
        for kind, content in answer.get("content", {}).items()
    ]
    told.append("; ".join([*(f"body: {each}" for each in body), *answers]) + "\n")
    return "\n".join(told)


def _records(schema: Mapping[str, Any]) -> Iterator[str]:
    shown = [name for name in schema["components"]["schemas"] if name not in {"ErrorAnswer", "Failure"}]
    for name in sorted(shown):
        record = schema["components"]["schemas"][name]
        about = record.get("description", "").split("\n\n")[0].replace("\n", " ")
        if words := record.get("enum"):
            yield f"### {name}\n\n{about}\n\n{', '.join(f'`{word}`' for word in words)}\n"
        elif fields := record.get("properties"):
            needed = record.get("required", ())
            rows = "".join(
                f"| `{each}` | {_shape(fields[each])} | {fields[each].get('description', '')} |\n"
                for each in sorted(fields, key=lambda name: name not in needed)
            )
            yield f"### {name}\n\n{about}\n\n| | | |\n|---|---|---|\n{rows}"


def _shape(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if found := schema.get("anyOf"):
        return " or ".join(_shape(each) for each in found)
    if words := schema.get("enum"):
        return ", ".join(f"`{word}`" for word in words)
    if (kind := schema.get("type", "any")) == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    inner = schema.get("additionalProperties")
    return f"map of {_shape(inner)}" if isinstance(inner, Mapping) else str(kind)


def paths() -> dict[str, Path]:
    """Return where the pages are."""
    return {name: DOCS / name for name in HEADS}


if __name__ == "__main__":
    for each, where in paths().items():
        where.write_text(page(each))
