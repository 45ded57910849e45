"""`GET /v1/me`: the caller of a request and its rights. `GET /v1/settings`: the settings of the node that answers."""

from __future__ import annotations

import re

from gateway.http.documents import answer_document
from gateway.http.query import NoQuery, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.rights import OPERATIONS
from gateway.settings import NODE_RULES
from gateway.status.context import StatusContext

NAMES_MAX = 100  # single names of one right that are listed
_CREDENTIALS = re.compile(r"(?<=://)[^/?#]*@|[?#].*", re.DOTALL)  # in the URLs of the store and of ZooKeeper


async def describe_me(request: Request, context: StatusContext) -> Response:
    """GET /v1/me"""
    read_query(request, NoQuery)
    caller, space = request.caller, request.space
    rights = []
    for resource, operations in OPERATIONS.items():
        for operation in sorted(operations):
            prefixes, names = caller.prefixes(operation, resource), caller.names(operation, resource)
            if prefixes is None or prefixes or names:
                rights.append(
                    {
                        "resource": resource.value,
                        "operation": operation.value,
                        "prefixes": [""] if prefixes is None else list(prefixes),
                        "names": list(names[:NAMES_MAX]),
                    }
                )
    document: dict[str, object] = {
        "principal": caller.principal,
        "superuser": caller.is_superuser,
        "anonymous": caller.principal == "anybody",
        "expires_ms": caller.expires_ms or None,
        "tenant": None if space is None else space.tenant,
        "rights": rights,
    }
    return await answer_document(request, document, is_polled=True)


async def describe_settings(request: Request, context: StatusContext) -> Response:
    """GET /v1/settings"""
    read_query(request, NoQuery)
    settings = context.admin.settings
    rows = []
    for rule in NODE_RULES.values():
        value = getattr(settings, rule.name)
        source = settings.sources.get(rule.name, "default")
        if source == "default" and value != rule.default:
            source = "adjusted"
        rows.append(
            {
                "name": rule.name,
                "value": without_credentials(value),
                "source": source,
                "default": rule.default,
                "minimum": rule.minimum,
                "maximum": rule.maximum,
                "choices": list(rule.choices),
                "why": rule.why,
            }
        )
    document = {"node_id": context.admin.peers.node_id, "version": context.version, "settings": rows}
    return await answer_document(request, document, is_polled=True)


def without_credentials(value: object) -> object:
    """Returns a value without user, password and query in its URLs. Settings have no other secrets: they name files."""
    if isinstance(value, str):
        return ",".join(_CREDENTIALS.sub("", word) for word in value.split(",")) if "://" in value else value
    return [without_credentials(word) for word in value] if isinstance(value, tuple | list) else value
