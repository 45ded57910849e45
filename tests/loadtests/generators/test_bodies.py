import json

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from loadtests.generators import bodies
from loadtests.generators.delivery import numbered_request
from loadtests.generators.records import numbers_in


def test_values_are_json_of_exactly_the_size_asked_for():
    values = bodies.json_values(1000)
    assert {len(value) for value in values} == {100}
    assert [json.loads(value)["n"] for value in values] == list(range(1000))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_stored_batch_holds_the_values_and_a_right_checksum(codec):
    values = bodies.json_values(50)
    body = bodies.batch_body(values, 1_700_000_000_000, codec)
    batch = DefaultRecordBatch(body.data)
    assert batch.validate_crc()
    assert [record.value for record in batch] == values
    assert body.records == 50


def test_json_and_ndjson_hold_the_same_values():
    values = bodies.json_values(20)
    as_json = json.loads(bodies.json_body(values).data)["records"]
    as_ndjson = [json.loads(line) for line in bodies.ndjson_body(values).data.splitlines()]
    assert [record["value"] for record in as_json] == as_ndjson == [json.loads(value) for value in values]


def test_a_numbered_record_says_its_number_and_keeps_its_size():
    requests = [numbered_request("host", "/", number) for number in (0, 4_294_967_296)]
    lines = [request.partition(b"\r\n\r\n")[2] for request in requests]
    assert numbers_in(b"".join(lines)) == [0, 4_294_967_296]
    assert {len(line) for line in lines} == {101}
    assert json.loads(lines[0])["n"] == "0000000000"
