"""A node with an expired session registers again after any temporary obstacle, without a restart."""

import errno
import logging
from dataclasses import replace

import pytest

from engine.errors import StorageFull
from replication.cluster import agent as cluster_agent
from replication.cluster.controller import ControllerCandidate
from replication.cluster.registration_state import RegistrationState
from tests.replication.clusters import leaders

RETRY_S = (0.01,)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(cluster_agent, "RETRY_S", RETRY_S)


class Disk:
    """Fails to store the registration state while it is full."""

    def __init__(self) -> None:
        self.is_full = True
        self.refused = 0
        self.kept: list[RegistrationState] = []

    async def keep(self, registration_state: RegistrationState) -> None:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self.kept.append(registration_state)


async def test_a_node_whose_disk_is_full_registers_when_there_is_room(alone, caplog):
    one, two = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 1, {})
    disk = Disk()
    known = one.own.registration_state
    one.own.save_registration_state, one.own.registration_state = disk.keep, replace(known, survives_from=None)
    await alone.expire(1)
    await alone.until(lambda: disk.refused >= 3)
    assert one.member is None
    assert any("cannot register" in line.message and "No space" in line.reason for line in caplog.records)
    disk.is_full = False
    await alone.until(lambda: one.member is not None)
    broker_epoch = one.member.broker_epoch
    assert disk.kept == [replace(known, survives_from=broker_epoch)], "of no life that was refused"
    await alone.until(lambda: set(leaders(two, topic)) == {1, 2})


async def test_a_node_without_changes_does_not_write_its_registration_state(alone):
    (one,) = await alone.start_all(1)
    disk = Disk()
    one.own.save_registration_state = disk.keep
    await alone.expire(1)
    await alone.until(lambda: len(alone.listeners[1].members) == 2)
    assert disk.refused == 0


async def test_a_session_that_cannot_be_closed_is_followed_by_another(alone, monkeypatch):
    (one,) = await alone.start_all(1)
    session = alone.sessions[1][-1]
    close, refused = session.close, []

    async def full() -> None:
        await close()
        refused.append("")
        raise StorageFull("coordination: no space is left")

    monkeypatch.setattr(session, "close", full)
    one.reregister()
    await alone.until(lambda: len(alone.listeners[1].members) == 2)
    assert len(refused) == 2, "by the caller, and at the end of that session"


async def test_an_unexpected_fault_is_logged_and_retried(alone, monkeypatch, caplog):
    (one,) = await alone.start_all(1)
    opened = one._open_session
    faults = [KeyError("a bug"), KeyError("a bug")]

    async def faulty():
        if faults:
            raise faults.pop()
        return await opened()

    monkeypatch.setattr(one, "_open_session", faulty)
    await alone.expire(1)
    await alone.until(lambda: len(alone.listeners[1].members) == 2)
    assert [line.exc_info[0] for line in caplog.records if line.exc_info] == [KeyError, KeyError]


async def test_a_controller_that_ends_by_a_bug_is_logged_and_ends_the_session(alone, monkeypatch, caplog):
    run, bugs = ControllerCandidate.run, [KeyError("a bug")]

    async def buggy(self: ControllerCandidate) -> None:
        if bugs:
            raise bugs.pop()
        await run(self)

    monkeypatch.setattr(ControllerCandidate, "run", buggy)
    (one,) = await alone.start_all(1)
    await alone.until(lambda: len(alone.listeners[1].members) == 2 and one.is_controller)
    (logged,) = (line for line in caplog.records if line.levelno == logging.ERROR)
    assert logged.doing == "running for controller"
    assert logged.exc_info[0] is KeyError
