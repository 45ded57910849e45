"""The HTTP contract of Penstock: `gateway.yaml`, its runnable examples, and the functions that load them."""

from openapi.contract import (
    Example,
    Expected,
    Operation,
    contract_json,
    load_contract,
    load_examples,
    operations,
    resolve,
)

__all__ = [
    "Example",
    "Expected",
    "Operation",
    "contract_json",
    "load_contract",
    "load_examples",
    "operations",
    "resolve",
]
