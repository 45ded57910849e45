"""The files of `clients/` that are made from the contract: `python -m tests.clients.generated` writes them again.

TypeScript gets the schemas as types and both languages get two tables: the operations, and the problems with what
each promises. The clients decide about retries by the second table. Pure but for `main`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from openapi.contract import load_contract, resolve

ROOT = Path(__file__).parents[2]
HEAD = "Code generated from openapi/gateway.yaml by python -m tests.clients.generated. DO NOT EDIT."
METHODS = ("get", "put", "post", "patch", "delete")
# POSTs that may be sent twice: they read, or the node recognises a repeat.
REPEATABLE = frozenset(
    {
        *("fetch_many", "create_producer", "check_access", "sign_url", "pause_subscription", "resume_subscription"),
        *("group_heartbeat", "group_poll", "acquire_records", "acknowledge_records"),
    }
)
NO_TYPE = "unknown"


def files() -> dict[Path, str]:
    contract = load_contract()
    return {
        ROOT / "clients/typescript/src/contract.ts": typescript_types(contract),
        ROOT / "clients/typescript/src/tables.ts": typescript_tables(contract),
        ROOT / "clients/go/tables.go": go_tables(contract),
    }


def operations(contract: Any) -> dict[str, tuple[str, str, Any]]:
    """Return method, path and definition of each operation of `/v1`."""
    return {
        definition["operationId"]: (method.upper(), path, definition)
        for path, methods in contract["paths"].items()
        if path.startswith("/v1/")
        for method, definition in methods.items()
        if method in METHODS
    }


def is_repeatable(name: str, method: str) -> bool:
    return method in ("GET", "PUT", "DELETE") or name in REPEATABLE


def typescript_types(contract: Any) -> str:
    schemas = contract["components"]["schemas"]
    blocks = [f"// {HEAD}\n"]
    blocks += [f"export type {name} = {_type(schema)};\n" for name, schema in schemas.items()]
    lines = [
        f"  {name}: {{ path: {_path(path)}; body: {_body(operation)}; answer: {_answer(contract, operation)} }};"
        for name, (_, path, operation) in operations(contract).items()
    ]
    names = "\n".join(lines)
    head = "/** The path parameters, the JSON body and the JSON answer of each operation. */"
    blocks.append(f"{head}\nexport interface Operations {{\n{names}\n}}\n")
    return "\n".join(blocks)


def typescript_tables(contract: Any) -> str:
    rows = [
        f'  {name}: ["{method}", "{path}", {json.dumps(is_repeatable(name, method))}],'
        for name, (method, path, _) in operations(contract).items()
    ]
    problems = [
        f"  {code}: [{problem['status']}, {_flag(problem['retryable'])}, {_flag(problem['no_side_effects'])}],"
        for code, problem in contract["x-penstock-problems"].items()
    ]
    return "\n".join(
        [
            f"// {HEAD}",
            "",
            "/** Method, path, and whether a repeat is safe without a key. */",
            "export const OPERATIONS = {",
            *rows,
            "} as const;",
            "",
            "/** Status, retryable, no_side_effects. */",
            "export const PROBLEMS: Record<string, readonly [number, 0 | 1, 0 | 1]> = {",
            *problems,
            "};",
            "",
        ]
    )


def go_tables(contract: Any) -> str:
    """Lines that gofmt does not align, so that no Go is needed to make them."""
    rows = [
        f'var {_camel(name)} = Operation{{"{method}", "{path}", {json.dumps(is_repeatable(name, method))}}}'
        for name, (method, path, _) in operations(contract).items()
    ]
    problems = [
        f"\t{{{json.dumps(code)}, {problem['status']}, {json.dumps(problem['retryable'])},"
        f" {json.dumps(problem['no_side_effects'])}, {_text(problem['what_to_do'])}}},"
        for code, problem in contract["x-penstock-problems"].items()
    ]
    head = [f"// {HEAD}", "", "package penstock", "", "// The operations of the contract, for Client.Call."]
    return "\n".join([*head, *rows, "", "var problemRows = []promise{", *problems, "}", ""])


def _text(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def _flag(value: bool) -> int:
    return int(value)


def _camel(name: str) -> str:
    upper = {"url": "URL", "urls": "URLs"}
    return "Op" + "".join(upper.get(word, word.capitalize()) for word in name.split("_"))


def _path(path: str) -> str:
    names = re.findall(r"{(\w+)}", path)
    return "{ " + "; ".join(f"{name}: string | number" for name in names) + " }" if names else "{}"


def _body(operation: Any) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    return _type(content["application/json"]["schema"]) if "application/json" in content else "undefined"


def _answer(contract: Any, operation: Any) -> str:
    given = operation["responses"].items()
    successes = [resolve(contract, response) for status, response in given if status.startswith("2")]
    contents = [success["content"] for success in successes if "application/json" in success.get("content", {})]
    answers = [_type(content["application/json"]["schema"]) for content in contents]
    return " | ".join(dict.fromkeys(answers)) or NO_TYPE


def _type(schema: Any) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[1]
        return name if "/schemas/" in schema["$ref"] else NO_TYPE
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "allOf" in schema:
        return " & ".join(f"({_type(part)})" for part in schema["allOf"])
    if "properties" in schema:
        return _object(schema)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " | ".join(dict.fromkeys(f"({_type(part)})" for part in schema[choice]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(f"({_type({**schema, 'type': single})})" for single in kind)
    if kind == "array":
        return f"({_type(schema.get('items', {}))})[]"
    if kind == "object":
        more = schema.get("additionalProperties")
        return f"Record<string, {_type(more) if isinstance(more, dict) else NO_TYPE}>"
    if "required" in schema and kind is None:
        return "{ " + " ".join(f"{json.dumps(name)}: {NO_TYPE};" for name in schema["required"]) + " }"
    return {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}.get(
        str(kind), NO_TYPE
    )


def _object(schema: Any) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"{json.dumps(name)}{'' if name in required else '?'}: {_type(part)};"
        for name, part in schema["properties"].items()
    ]
    return "{ " + " ".join(fields) + " }"


def main() -> None:
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
