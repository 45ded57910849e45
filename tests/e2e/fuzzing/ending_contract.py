"""The contract without the operations whose answers never end. tests/scenarios/*/test_event_streams.py tests those."""

from __future__ import annotations

from typing import Any

from openapi import load_contract

ENDLESS = ("tail_topic", "group_events")


def ending_contract() -> dict[str, Any]:
    contract = load_contract()
    paths = {path: _ending(item) for path, item in contract["paths"].items()}
    return {**contract, "paths": paths}


def _ending(item: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in item.items() if name == "parameters" or part["operationId"] not in ENDLESS}
