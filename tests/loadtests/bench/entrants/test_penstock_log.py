"""What a log of Penstock answers is looked into before it is measured: wrong answers are refused."""

import json

import pytest

from loadtests.bench.entrants.penstock_log import PenstockLog
from loadtests.generators.bodies import BATCH_TYPE, JSON_TYPE, NDJSON_TYPE, batch_body, json_values

VALUES = json_values(4)
RECORDS = 64


class FakeAdmin:
    """Answers four records from the asked offset on."""

    def __init__(self, spoil=lambda offset: offset):
        self.spoil = spoil

    def request(self, method, path, *, accept):
        offset = int(path.partition("offset=")[2].partition("&")[0])
        first = self.spoil(offset)
        records = [{"offset": at, "value": json.loads(VALUES[at % 4])} for at in range(first, first + 4)]
        if accept == BATCH_TYPE:
            data = first.to_bytes(8, "big") + batch_body(VALUES, 1).data[8:]
        elif accept == JSON_TYPE:
            data = json.dumps({"records": records}).encode()
        else:
            data = "".join(json.dumps(record) + "\n" for record in records).encode()
        return {"Penstock-Next-Offset": str(offset + 4)}, data


@pytest.mark.parametrize("media_type", [BATCH_TYPE, JSON_TYPE, NDJSON_TYPE])
def test_targets_are_spread_and_their_answers_are_known(media_type):
    targets = PenstockLog(FakeAdmin(), "t", RECORDS, VALUES).targets(media_type)
    assert len({target.path for target in targets}) == len(targets) == 8
    assert {target.records for target in targets} == {4}


@pytest.mark.parametrize("media_type", [BATCH_TYPE, JSON_TYPE, NDJSON_TYPE])
def test_other_records_are_refused(media_type):
    with pytest.raises(RuntimeError, match="other records than were stored"):
        PenstockLog(FakeAdmin(spoil=lambda offset: offset + 4), "t", RECORDS, VALUES).targets(media_type)
