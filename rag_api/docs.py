"""Reference pages from the code: `python -m rag_api.docs` writes docs/api.md and docs/cli.md.

The OpenAPI description and the commands go in, Markdown comes out; a test compares it with the
files, so that they cannot go stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rag_api.settings import Settings

FOLDER = Path(__file__).resolve().parents[1] / "docs"
MADE_BY = "<!-- Made by `python -m rag_api.docs`; do not edit. -->"
METHODS = ("get", "post", "put", "delete")


def api_page() -> str:
    """Describe every route and every body of a request."""
    from rag_api.web.app import create_app

    description = create_app(Settings.model_validate({"worker": False})).openapi()
    lines = ["# HTTP API", "", MADE_BY, "", description["info"]["description"], ""]
    lines += [
        "Errors are `application/problem+json` with `type`, `title`, `status`, `detail`, `code`, "
        "and OpenAI's `error {message, type, param, code}`. What a retry cannot mend carries "
        "`x-should-retry: false`.",
        "",
        "## Routes",
        "",
    ]
    for path, methods in description["paths"].items():
        for method in METHODS:
            if method in methods:
                lines += _route(method, path, methods[method])
    lines += ["## Bodies", ""]
    for name, schema in sorted(description["components"]["schemas"].items()):
        if "ValidationError" not in name:
            lines += _body(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def cli_page() -> str:
    """Describe every command with its arguments and options."""
    import typer.main

    from rag_api.cli import app

    lines = ["# Command line", "", MADE_BY, ""]
    lines += [*_command(["graft"], typer.main.get_command(app))]
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"api.md": api_page, "cli.md": cli_page}


def _route(method: str, path: str, route: Mapping[str, Any]) -> list[str]:
    lines = [f"### `{method.upper()} {path}`", "", route.get("description", ""), ""]
    rows = [
        f"| `{each['name']}` | {each['in']} | {_kind(each['schema'])} "
        f"| {each.get('description', '')} |"
        for each in route.get("parameters", [])
        if each["in"] == "query"
    ]
    if rows:
        lines += ["| parameter | in | type | |", "| --- | --- | --- | --- |", *rows, ""]
    for media, content in route.get("requestBody", {}).get("content", {}).items():
        lines += [f"Body: `{media}`, {_kind(content['schema'])}.", ""]
    return lines


def _body(name: str, schema: Mapping[str, Any]) -> list[str]:
    required = set(schema.get("required", ()))
    lines = [f"### {name}", "", schema.get("description", ""), ""]
    rows = [
        f"| `{key}`{' (required)' if key in required else ''} | {_kind(value)} "
        f"| {_default(value)} | {value.get('description', '')} |"
        for key, value in schema.get("properties", {}).items()
    ]
    return [*lines, "| key | type | default | |", "| --- | --- | --- | --- |", *rows, ""]


def _default(schema: Mapping[str, Any]) -> str:
    return f"`{schema['default']}`" if "default" in schema else ""


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (
            ("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<")
        )
        if key in schema
    ]  # fmt: skip
    return " ".join([schema.get("type", "any"), *bounds])


def _command(path: list[str], command: Any) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    yield from (f"{'#' * min(4, len(path) + 1)} `{' '.join(path)}`", "", command.help or "", "")
    rows = []
    for param in command.params:
        names = ", ".join([*param.opts, *param.secondary_opts])
        is_option = param.param_type_name == "option"
        label = f"`{names}`" if is_option else f"`{str(param.metavar or param.name).upper()}`"
        needed = " (required)" if param.required else ""
        rows.append(f"| {label}{needed} | {param.help or ''} |")
    if rows:
        yield from ("| | |", "| --- | --- |", *rows, "")
    for name in sorted(subcommands):
        yield from _command([*path, name], subcommands[name])


def main() -> int:
    """Write the pages; with --check, say which are stale instead."""
    stale = 0
    for name, make in PAGES.items():
        path, page = FOLDER / name, make()
        if "--check" not in sys.argv[1:]:
            path.write_text(page, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != page:
            print(f"{path} is stale; run `python -m rag_api.docs`", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
