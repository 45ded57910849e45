"""The examples of the contract, sent in order to a fresh node: each answer is as documented."""

import pytest

from openapi import load_examples
from tests.contract.example_matching import differences
from tests.scenarios.http.test_hosts import naming


async def test_every_example_of_the_contract_is_answered_as_it_says(start_gateway):
    gateway = await start_gateway()
    wrong = []
    for example in load_examples():
        headers = dict(example.headers)
        if host := headers.pop("Host", None):
            headers |= naming(gateway, host)
        answer = await gateway.send(example.method, example.path, example.body or b"", headers)
        found_differences = differences(example.expect, answer.status, answer.headers, answer.body)
        wrong += [f"{example.name}: {difference}" for difference in found_differences]
    if wrong:
        pytest.fail("\n".join(wrong))
