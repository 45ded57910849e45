"""Calls between nodes of two versions: their bytes on a link stay as kept here, from the nodes of 2026-11-26."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from engine.format.keyed_batch import KeyEntry, SourceEntry
from engine.producers.appends import AppendConditions, conditions_of, fields_of
from gateway.admin.operation_calls import Balance, Operation, Reassign
from gateway.admin.partition_calls import SetFence
from gateway.fetch.multi_fetch import ReadArguments, WaitArguments
from gateway.fetch.reader import Limits, PartitionRead
from gateway.fetch.request import FetchRequest
from gateway.links.link import Answer, handler
from gateway.routing.calls import (
    AppendArguments,
    CheckAppendArguments,
    FindKeyArguments,
    PartitionArguments,
    RowsArguments,
)
from replication.replica.acks import Acks
from tests.scenarios.gateways import in_process

CONDITIONS = AppendConditions(5, "token", KeyEntry(b"kk", b"rr", 4, 99))
WITH_SOURCE = AppendConditions(None, None, None, SourceEntry(b"ss", 3, 7, 99))
FETCH = FetchRequest(
    5, None, None, None, None, 1, 500, None, "records", "application/json", None, 7, from_follower=True, rack="a"
)
FETCH_HEX = (
    "de000ea66f666673657405a466726f6dc0a974696d657374616d70c0a96d61785f6279746573c0ab6d61785f7265636f726473c0a96d696e5f6279"
    "74657301a7776169745f6d73cd01f4a576616c7565c0a66e646a736f6ea77265636f726473aa6d656469615f74797065b06170706c69636174"
    "696f6e2f6a736f6ead69665f6e6f6e655f6d61746368c0ac6c65616465725f65706f636807ad66726f6d5f666f6c6c6f776572c3a47261636b"
    "a161"
)
WANTED = [PartitionRead("t", "id", 3, 5, 7)]


def of_partition(arguments: object) -> PartitionArguments[object]:
    return PartitionArguments("id", "t", 3, 7, arguments)


KEPT: list[tuple[str, object]] = [
    ("92a6617070656e6497a26964a1740307a3616c6ccd7530c0", AppendArguments("id", "t", 3, 7, Acks.ALL, 30000, None)),
    (
        "92a6617070656e6497a26964a1740307a131cd75309305a5746f6b656e94c4026b6bc40272720463",
        AppendArguments("id", "t", 3, 7, Acks.LEADER, 30000, fields_of(CONDITIONS)),
    ),
    (
        "92a6617070656e6497a26964a1740307a3616c6ccd753094c0c0c094c40273730307" + "63",
        AppendArguments("id", "t", 3, 7, Acks.ALL, 30000, fields_of(WITH_SOURCE)),
    ),
    ("92a6736f7572636595a26964a1740307c4026868", of_partition(b"hh")),
    ("92ac636865636b5f617070656e6495a26964a1740307a130", CheckAppendArguments("id", "t", 3, 7, Acks.NONE)),
    (
        "92a866696e645f6b657996a174a26964920002c4016bc40172cd04d2",
        FindKeyArguments("t", "id", [0, 2], b"k", b"r", 1234),
    ),
    ("92a5666574636895a26964a1740307" + FETCH_HEX, of_partition(FETCH)),
    ("92a97365745f66656e636595a26964a174030792a5746f6b656ec0", of_partition(SetFence("token", None))),
    ("92ac66696e645f6f66667365747395a26964a1740307c0", of_partition(None)),
    ("92ad64656c6574655f6265666f726595a26964a174030709", of_partition(9)),
    (
        "92a4726f777394a86465736372696265a26964a17492920001920200",
        RowsArguments("describe", "id", "t", [(0, 1), (2, 0)]),
    ),
    ("92a9776169745f6d616e79929195a174a26964030507cd0400", WaitArguments(WANTED, 1024)),
    (
        "92a9726561645f6d616e79949195a174a2696403050795cd1000c0a46a736f6e01c290c0",
        ReadArguments(WANTED, Limits(4096, None, "json", 1, as_lines=False)),
    ),
    ("92a76f70657261746593a8726561737369676ea1748100920102", Reassign("t", {0: [1, 2]})),
    ("92a76f70657261746593a762616c616e6365c381a469642f300a", Balance(is_applied=True, sizes={"id/0": 10})),
]


async def no_answer(arguments: object, payload: bytes) -> Answer:
    raise NotImplementedError


async def kinds(tmp_path: Path) -> dict[str, object]:
    async with in_process(tmp_path) as gateway:
        handlers = {**gateway.node.peer_handlers(), "operate": handler(cast(Any, Operation), no_answer)}
        return {name: one.kind for name, one in handlers.items()}


async def test_calls_keep_their_bytes(tmp_path):
    found = await kinds(tmp_path)
    for kept, arguments in KEPT:
        name, received = msgspec.msgpack.decode(bytes.fromhex(kept))
        assert msgspec.msgpack.encode((name, arguments)).hex() == kept, name
        decoded = msgspec.convert(received, found[name])
        if isinstance(decoded, AppendArguments):  # a condition that this version does not know is an error
            assert fields_of(conditions_of(decoded.conditions)) == arguments.conditions
            decoded = msgspec.structs.replace(decoded, conditions=arguments.conditions)
        assert decoded == arguments, name


async def test_an_argument_that_a_newer_version_appends_is_ignored(tmp_path):
    found = await kinds(tmp_path)
    for kept, _ in KEPT:
        name, received = msgspec.msgpack.decode(bytes.fromhex(kept))
        assert msgspec.convert([*received, "new"], found[name]) == msgspec.convert(received, found[name]), name


@pytest.mark.parametrize("index", range(6))
async def test_an_argument_of_another_type_is_an_error(tmp_path, index):
    _, received = msgspec.msgpack.decode(bytes.fromhex(KEPT[0][0]))
    received[index] = ["of another type"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(received, AppendArguments)
