"""The implemented part of the contract: without what is marked planned, which answers 501 by design.

It also omits responses that never end. tests/scenarios tests both: test_refused_requests.py, test_event_streams.py.
"""

from __future__ import annotations

from typing import Any

from openapi import load_contract, resolve
from openapi.contract import METHODS

ENDLESS = ("tail_topic", "group_events")


def built_contract() -> dict[str, Any]:
    contract = load_contract()
    built = _built(contract, contract)
    assert isinstance(built, dict)
    built["paths"] = {path: item for path, item in built["paths"].items() if item.keys() & set(METHODS)}
    return built


def _built(contract: dict[str, Any], value: Any) -> Any:
    """Return a copy without the planned parts, inline or referenced."""
    if isinstance(value, dict):
        return {name: _built(contract, part) for name, part in value.items() if not _is_planned(contract, part)}
    if isinstance(value, list):
        return [_built(contract, part) for part in value if not _is_planned(contract, part)]
    return value


def _is_planned(contract: dict[str, Any], value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return resolve(contract, value).get("x-penstock-status") == "planned" or value.get("operationId") in ENDLESS
