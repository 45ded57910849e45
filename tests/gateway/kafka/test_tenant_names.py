"""Messages of a tenant: stored names for the handlers, visible ones on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.names import TenantNames
from gateway.kafka.codec.messages import direction
from gateway.kafka.codec.schema import GROUP, TOPIC
from gateway.kafka.codec.tables import TABLES
from gateway.kafka.tenant_names import _rename, _steps, _stored_expression, stored_request, visible_response
from tests.gateway.kafka.served import request
from tests.gateway.kafka.test_oracle import messages

ACME = TenantNames("acme")


@pytest.mark.parametrize("api", TABLES)
def test_what_comes_in_is_below_the_prefix_and_goes_out_as_it_came(api: str) -> None:
    way, version = direction(api, is_request=True), TABLES[api].last

    @settings(max_examples=10, deadline=None, derandomize=True, database=None)
    @given(messages(way.fields, version, way.types))
    def check(message: object) -> None:
        before, entered = repr(message), list[tuple[str, str]]()

        def note(entity: str, name: str) -> str:
            entered.append((entity, name))
            return name

        stored = stored_request(ACME, api, message)
        assert repr(message) == before, "it may be shared"
        assert _rename(_steps(api, is_request=True), note, stored) == stored
        for entity, name in entered:
            assert entity not in (TOPIC, GROUP) or name.startswith("acme.") or name == "", "no name at all is none"

    check()


@given(st.text(max_size=5) | st.sampled_from(["acme.orders", "acme./x", "/x", "x" * 244, "x" * 245, "__groups", "__x"]))
def test_a_topic_that_an_answer_repeats_has_the_name_that_was_sent(name: str) -> None:
    (stored,) = stored_request(ACME, "DeleteTopics", request("DeleteTopics", topic_names=[name])).topic_names
    row = direction("DeleteTopics", is_request=False).types["responses"](name=stored, error_message=f"no {stored!r}")
    answer = direction("DeleteTopics", is_request=False).types[""](responses=[row])
    shown = visible_response(ACME, "DeleteTopics", answer)
    assert shown.responses[0].name == name
    assert answer.responses[0].name == stored, "it may be shared"
    assert "'acme." not in shown.responses[0].error_message or "acme." in name


@pytest.mark.parametrize("text", ["a)|(?:.*", "(", "x|y", ""])
def test_an_expression_that_is_not_valid_alone_is_not_made_valid(text: str) -> None:
    pytest.importorskip("re2")
    stored = _stored_expression(ACME, text)
    assert stored == (text if "(" in text else rf"acme\.(?:{text})")
