"""The file `topic.json` of a topic."""

import pytest

from engine.directory.topics import decoded_topic
from engine.errors import Corrupt

WHOLE = b'{"format": 1, "topic": "t", "topic_id": "i", "partitions": 1, "replication_factor": 1, "config": {}}'


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "it is not JSON"),
        (b"\0" * 100, "it is not JSON"),
        (WHOLE, "it lacks the field created_ms"),
        (b"[]", "a value in it is of the wrong kind"),
        (b'{"format": "1"}', "a value in it is of the wrong kind"),
        (b'{"format": 1, "elsewhere": 5}', "a value in it is of the wrong kind"),
        (b'{"format": 1, "elsewhere": {"1": 2}}', "a value in it is of the wrong kind"),
    ],
)
def test_damage_is_named_in_plain_words(data, fault):
    with pytest.raises(Corrupt) as error:
        decoded_topic("/data/topics/t/i", data)
    assert error.value.detail == f"/data/topics/t/i/topic.json is damaged: {fault}"
