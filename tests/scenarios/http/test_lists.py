"""Every list of the API has pages by name, with the same parameters and members."""

import pytest

from openapi import load_contract, operations
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import in_process_only

PREFIX = {"$ref": "#/components/parameters/Prefix"}
LISTS = [one for one in operations(load_contract()) if PREFIX in one.spec.get("parameters", ())]


def test_every_list_of_the_contract_has_pages():
    unpaged = {"list_reassignments"}  # of a partition each, while they run
    named = {one.operation_id for one in operations(load_contract()) if one.operation_id.startswith("list_")}
    assert {one.operation_id for one in LISTS} == named - unpaged


@in_process_only
@pytest.mark.parametrize("operation", LISTS, ids=lambda operation: operation.operation_id)
async def test_a_page_of_nothing_and_parameters_that_are_wrong(gateway, operation):
    document = (await gateway.send("GET", operation.path, prefix="~", after="~", limit=3)).json
    assert (document["total"], document["next"]) == (0, None)
    for query in ({"limit": 0}, {"limit": 1001}, {"prefix": "a" * 401}, {"after": "a" * 401}):
        assert_problem(await gateway.send("GET", operation.path, **query), "invalid_query", parameter=next(iter(query)))


@in_process_only
async def test_groups_come_in_pages(gateway):
    for name in ("b1", "b2", "a"):
        assert (await gateway.send("PUT", f"/v1/groups/{name}", b'{"config":{"kind":"share"}}')).status < 300
    document = (await gateway.send("GET", "/v1/groups", prefix="b", limit=1)).json
    assert ([row["group"] for row in document["groups"]], document["total"], document["next"]) == (["b1"], 2, "b1")
    rest = (await gateway.send("GET", "/v1/groups", prefix="b", after="b1")).json
    assert ([row["group"] for row in rest["groups"]], rest["next"]) == (["b2"], None)
