"""Failed records over HTTP: reported by a poll, delivered again, and copied to the dead-letter topic once."""

from __future__ import annotations

from tests.scenarios.groups.group_client import ok, problem, values


def failed(topic, offset, **more):
    return {"failed": [{"topic": topic.name, "partition": 0, "offset": offset, "error": "no such account", **more}]}


async def configured(group, dead, **config):
    ok(await group.send("PUT", "", {"config": {"dead_letter_topic": dead.name, **config}}))


async def test_a_record_that_fails_often_enough_goes_to_the_dead_letter_topic_and_the_partition_goes_on(
    group, topic, new_topic
):
    dead = await new_topic(1)
    await configured(group, dead, deliveries_max=2)
    await topic.post_records(*({"key": f"k{n}", "value": n, "headers": {"room": "7"}} for n in range(4)))
    first = await group.polled("a", topics=[topic.name])
    again = await group.polled("a", token=first["token"], **failed(topic, 1))
    assert (values(first), values(again)) == ([0, 1, 2, 3], [1, 2, 3])
    assert await group.offsets() == {(topic.name, 0): 1}
    for _ in range(2):  # the second is a repeat, as after a lost answer
        after = await group.polled("a", token=again["token"], **failed(topic, 1))
        assert values(after) == [2, 3]
    [letter] = await dead.records(offset=0)
    assert (letter["key"], letter["value"]) == ("k1", 1)
    assert letter["headers"] == {
        "room": "7",
        "dead-letter-reason": "deliveries_max",
        "dead-letter-attempts": "2",
        "dead-letter-group": group.name,
        "dead-letter-topic": topic.name,
        "dead-letter-partition": "0",
        "dead-letter-offset": "1",
        "dead-letter-error": "no such account",
    }
    await group.polled("a", token=after["token"])
    assert await group.offsets() == {(topic.name, 0): 4}


async def test_a_dead_letter_that_cannot_be_stored_is_delivered_again_and_an_event_says_why(group, topic, new_topic):
    dead = await new_topic(1)
    await configured(group, dead, deliveries_max=1)
    await topic.post_lines("1", "2")
    first = await group.polled("a", topics=[topic.name])
    assert (await group.gateway.send("DELETE", dead.path)).status == 204
    again = await group.polled("a", token=first["token"], **failed(topic, 0))
    assert values(again) == [1, 2]
    events = ok(await group.send("GET", "/explanation"))["events"]
    [event] = [one for one in events if one["cause"] == "dead_letters_failed"]
    assert dead.name in event["detail"]
    await group.gateway.create(dead.name)
    assert values(await group.polled("a", token=again["token"], **failed(topic, 0))) == [2]
    assert len(await dead.records(offset=0)) == 1


async def test_a_record_without_a_dead_letter_topic_stops_its_partition_and_explain_names_it(group, topic):
    await topic.post_lines("1", "2")
    found = await group.polled("a", topics=[topic.name])
    for _ in range(3):
        found = await group.polled("a", token=found["token"], **failed(topic, 0))
        assert values(found) == [1, 2]
    findings = ok(await group.send("GET", "/explanation"))["findings"]
    assert [one["cause"] for one in findings] == ["poison_record"]


async def test_reports_that_make_no_sense_are_refused_and_nothing_is_committed(group, topic):
    await topic.post_lines("1", "2")
    assert problem(await group.poll("a", topics=[topic.name], **failed(topic, 0))) == (400, "invalid_body")
    first = await group.polled("a", topics=[topic.name])
    for wrong in (failed(topic, 2), failed(topic, 0, partition=7), failed(topic, 0, attempts=3)):
        answer = await group.poll("a", token=first["token"], **wrong)
        assert answer.status == 400
    assert await group.offsets() == {(topic.name, 0): 0}
    ok(await group.send("PUT", "", {"config": {"auto_commit": False}}))
    by_hand = await group.polled("a", topics=[topic.name])
    assert problem(await group.poll("a", token=by_hand["token"], **failed(topic, 0))) == (400, "invalid_body")
