"""Failed records over HTTP: reported by a poll, delivered again, and copied to the dead-letter topic once."""

from __future__ import annotations

import time

from engine.settings import rules
from gateway.groups.model.settings import KINDS_OF, GroupSettings
from tests.scenarios.groups.group_client import ok, problem, values


def failed(topic, offset, **more):
    return {"failed": [{"topic": topic.name, "partition": 0, "offset": offset, "error": "no such account", **more}]}


async def configured(group, dead, delay_ms=0, **config):
    """A failed record comes again at once, unless the test asks for a delay."""
    delays = {"redelivery_delay_ms": delay_ms, "redelivery_delay_ms_max": delay_ms}
    ok(await group.send("PUT", "", {"config": {"dead_letter_topic": dead.name, **delays, **config}}))


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
        "dead-letter-topic-id": (await topic.describe())["topic_id"],
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
    [event] = [event for event in events if event["cause"] == "dead_letters_failed"]
    assert dead.name in event["detail"]
    await group.gateway.create(dead.name)
    assert values(await group.polled("a", token=again["token"], **failed(topic, 0))) == [2]
    assert len(await dead.records(offset=0)) == 1


async def test_a_record_without_a_dead_letter_topic_stops_its_partition_and_explain_names_it(group, topic):
    ok(await group.send("PUT", "", {"config": {"redelivery_delay_ms": 0}}))
    await topic.post_lines("1", "2")
    answer = await group.polled("a", topics=[topic.name])
    for _ in range(3):
        answer = await group.polled("a", token=answer["token"], **failed(topic, 0))
        assert values(answer) == [1, 2]
    findings = ok(await group.send("GET", "/explanation"))["findings"]
    assert [finding["cause"] for finding in findings] == ["record_failed"]
    assert "failed 3 times (no such account)" in findings[0]["text"]


async def test_a_failed_record_comes_again_after_its_delay_and_a_poll_that_waits_gets_it_then(group, new_topic):
    topic, dead = await new_topic(2), await new_topic(1)
    await configured(group, dead, delay_ms=800, deliveries_max=3)
    await topic.post_lines("1", "2", partition=0)
    first = await group.polled("a", topics=[topic.name])
    began = time.monotonic()
    at_once = await group.polled("a", token=first["token"], **failed(topic, 0))
    assert values(at_once) == []
    [finding] = ok(await group.send("GET", "/explanation"))["findings"]
    assert (finding["cause"], finding["member_id"], finding["partition"]) == ("record_failed", "a", 0)
    assert "failed 1 time (no such account), and its partition waits for it" in finding["text"]
    assert finding["until_ms"] > 0
    await topic.post_lines("3", partition=1)
    others = await group.polled("a", token=at_once["token"], wait_ms=60_000)
    assert values(others) == [3], "the other partition is read meanwhile"
    again = await group.polled("a", token=others["token"], wait_ms=60_000)
    assert (values(again), time.monotonic() - began >= 0.4) == ([1, 2], True)


async def test_a_member_as_an_event_stream_waits_for_a_failed_record_too(group, new_topic):
    topic, dead = await new_topic(1), await new_topic(1)
    await configured(group, dead, delay_ms=600, deliveries_max=3)
    await topic.post_lines("1")
    first = await group.polled("a", topics=[topic.name])
    began = time.monotonic()
    await group.polled("a", token=first["token"], **failed(topic, 0))
    await group.leave("a")
    path, headers = f"{group.path}/members/b/events?topics={topic.name}", {"Accept": "text/event-stream"}
    while b"data:" not in (answer := await group.gateway.send("GET", path, b"", headers)).body:
        assert answer.status == 200
    assert time.monotonic() - began >= 0.3


async def test_dead_letters_are_events_findings_and_metrics_of_their_group(group, topic, new_topic):
    dead = await new_topic(1)
    await configured(group, dead, deliveries_max=1)
    await topic.post_lines("1", "2", "3")
    answer = await group.polled("a", topics=[topic.name])
    for offset in range(2):
        answer = await group.polled("a", token=answer["token"], **failed(topic, offset))
    explanation = ok(await group.send("GET", "/explanation"))
    [event] = [event for event in explanation["events"] if event["cause"] == "dead_lettered"][:1]
    assert (event["detail"], event["member_id"]) == (dead.name, "a")
    assert "2 records became dead letters lately" in explanation["findings"][0]["text"]
    text = (await group.gateway.send("GET", "/metrics")).body.decode()
    for name, value in (("penstock_group_dead_letters_total", "2.0"), ("penstock_group_delayed_partitions", "0.0")):
        [line] = [line for line in text.splitlines() if line.startswith(name) and f'group="{group.name}"' in line]
        assert line.endswith(f" {value}")


def test_every_setting_of_a_group_is_of_a_kind_or_of_both():
    of_both = {"kind", "start", "topics_priority", "offsets_retention_ms", "dead_letter_topic", "deliveries_max"}
    of_both |= {"redelivery_delay_ms", "redelivery_delay_ms_max"}
    assert of_both | KINDS_OF.keys() == {rule.name for rule in rules(GroupSettings)}
    assert not of_both & KINDS_OF.keys()


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
