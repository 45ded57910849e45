"""Records that are entirely in sealed segments may be cached and revalidated; all others may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.caching import cacheable_headers, is_not_modified, tag_of
from tests.engine.handmade import batch, record
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, RECORD_BATCH, in_process_only

FORMS = ["application/json", NDJSON, RECORD_BATCH, "application/cloudevents-batch+json"]


@pytest.fixture
async def sealed(new_topic):
    """Offsets 0 to 3 are sealed, 4 and 5 are not."""
    topic = await new_topic(1)
    await topic.post_lines("0", "1", "2", "3")
    await topic.roll()
    await topic.post_lines("4", "5")
    return topic


async def fetch(topic, offset=0, accept="application/json", tag=None, method="GET", **query):
    headers = {"Accept": accept, **({} if tag is None else {"If-None-Match": tag})}
    path = f"{topic.path}/partitions/0/records"
    return await topic.gateway.send(method, path, b"", headers, offset=offset, **query)


@pytest.mark.parametrize("accept", FORMS)
async def test_a_sealed_range_may_be_kept_and_asked_about(sealed, accept):
    answer = await fetch(sealed, accept=accept)
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "max-age=60")
    assert {"Accept", "Accept-Encoding"} <= set(", ".join(answer.headers.getall("Vary")).split(", "))
    tag = answer.headers["ETag"]
    assert tag.startswith("W/") == (accept != RECORD_BATCH)
    for tags in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
        again = await fetch(sealed, accept=accept, tag=tags)
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
        assert again.headers["Cache-Control"] == "max-age=60"
        assert again.headers["Penstock-High-Watermark"] == "6"
    other = await fetch(sealed, accept=accept, tag='"other"')
    assert (other.status, other.body) == (200, answer.body)
    assert (await fetch(sealed, accept=accept, tag=tag, method="HEAD")).status == 304


@in_process_only
async def test_each_answer_has_its_own_tag(sealed):
    answers = [await fetch(sealed, accept=accept) for accept in FORMS]
    answers += [await fetch(sealed, offset=1), await fetch(sealed, max_records=1), await fetch(sealed, value="base64")]
    answers += [await fetch(sealed, accept=NDJSON, ndjson="values")]
    assert len({answer.headers["ETag"] for answer in answers}) == len(answers)


async def test_what_is_not_sealed_is_not_kept(sealed):
    tag = (await fetch(sealed)).headers["ETag"]
    for answer in (
        await fetch(sealed, offset=4),
        await fetch(sealed, offset=6),
        await fetch(sealed, offset=4, tag="*"),
        await sealed.fetch(),
        await sealed.fetch(timestamp=0),
        await fetch(sealed, offset=7, tag=tag),
        await sealed.gateway.send("GET", "/v1/topics/none"),
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.status != 304
        assert "ETag" not in answer.headers


@in_process_only
async def test_a_tag_outlives_what_comes_later(sealed):
    tag = (await fetch(sealed)).headers["ETag"]
    await sealed.post_lines("6")
    await sealed.roll()
    assert (await fetch(sealed, tag=tag)).status == 304


async def test_deleted_records_are_gone_whatever_the_client_has(sealed):
    tag = (await fetch(sealed)).headers["ETag"]
    await sealed.gateway.send("DELETE", f"{sealed.path}/partitions/0/records", before=2)
    assert_problem(await fetch(sealed, tag=tag), "offset_below_log_start")


@in_process_only
async def test_a_topic_made_again_has_other_tags(new_topic):
    topic = await new_topic(1)
    tags = []
    for _ in range(2):
        await topic.gateway.send("PUT", topic.path, b'{"partitions":1}', {"Content-Type": "application/json"})
        await topic.post_lines("1")
        await topic.roll()
        tags.append((await fetch(topic)).headers["ETag"])
        await topic.gateway.send("DELETE", topic.path)
    assert tags[0] != tags[1]


@in_process_only
async def test_what_cannot_be_decoded_is_not_kept(new_topic):
    """A repair may restore it."""
    topic = await new_topic(1, verify="header")
    await topic.post(batch(record(0), 2), RECORD_BATCH)
    await topic.roll()
    for accept in FORMS:
        answer = await fetch(topic, accept=accept)
        assert (answer.status, "ETag" in answer.headers) == (200, accept == RECORD_BATCH), (
            "batches are given as they are"
        )
        assert answer.headers["Cache-Control"] == ("max-age=60" if accept == RECORD_BATCH else "no-store")


async def test_how_long_is_a_setting():
    assert cacheable_headers('"x"', 1500, is_private=False)["Cache-Control"] == "max-age=1"
    assert cacheable_headers('"x"', 0, is_private=False)["Cache-Control"] == "no-cache"
    private = cacheable_headers('"x"', 1500, is_private=True)
    assert private["Cache-Control"] == "private, max-age=1"
    assert "Authorization" in private["Vary"]


@given(st.lists(st.text("ab1", max_size=4), max_size=4))
def test_a_tag_is_found_wherever_it_stands(others):
    tag = tag_of("this", is_exact=False)
    listed = ", ".join([*(f'"{other}"' for other in others), tag])
    assert is_not_modified(listed, tag)
    assert not is_not_modified(", ".join(f'"{other}"' for other in others), tag)
    assert not is_not_modified("*", None)
