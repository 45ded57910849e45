"""Locks of share groups that outlive their coordinator, when the same process begins it again.

A disk that refuses records is not a lost leadership. The next coordinator replays the log, so that no part of a refused
call is left. The locks, the counts of deliveries and the outcomes that locks have given were in memory only, and come
from the coordinator before. Invariants: (1) a record that a caller holds is given to no other one; (2) an outcome of a
refused call is undone: its lock holds the record again, unless another one does; (3) what the log has is never undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.groups.core.group_table import GroupTable
from gateway.groups.model.settings import SHARE
from gateway.groups.model.state import Group
from gateway.groups.model.values import ConfigCall, ForgetCall, ResetCall
from gateway.groups.share.partition import SharePartition
from gateway.groups.share.state import Lock, ShareState
from gateway.groups.share.values import Granted, Outcome, SettleCall
from gateway.groups.share.window import State


def carry_locks(before: Mapping[str, Group], refused: Sequence[object], core: GroupTable) -> None:
    """Gives the share groups of a new coordinator the locks of the one before.

    `refused` are the calls that are not stored. A group which one of them was to create, reset or delete begins without
    locks, as the log has it.
    """
    changed = {call.group for call in refused if isinstance(call, ConfigCall | ForgetCall | ResetCall)}
    changed |= {call for call in refused if isinstance(call, str)}  # of a deletion
    for name, group in before.items():
        stored = core.groups.get(name)
        if group.share is None or name in changed or (stored is not None and stored.settings.kind != SHARE):
            continue
        if stored is None:
            core.add(stored := group)
        calls = [call for call in refused if isinstance(call, SettleCall) and call.group == name]
        stored.share = _carry(group.share, stored.share, calls)
        stored.topics = group.topics
        core.note_change(stored).is_changed = True


def _carry(share: ShareState, stored: ShareState | None, refused: Sequence[SettleCall]) -> ShareState:
    stored_partitions = {} if stored is None else stored.partitions
    for slot, partition in stored_partitions.items():
        ours = share.partitions.get(slot)
        if ours is None or ours.topic_id != partition.topic_id:
            share.removed.append((slot, list(partition.take_tombstones())))
    for call in reversed(refused):  # of two locks that have finished a record, the later one holds it again
        for lock in _locks_of(share, call):
            _undo(share, stored_partitions, lock, call)
    for slot, partition in share.partitions.items():
        partition.store_again(stored_partitions.get(slot))
    share.version += 1
    return share


def _locks_of(share: ShareState, call: SettleCall) -> list[Lock]:
    """Returns the locks whose records a call may have settled: the later ones first."""
    if not call.member_id:
        return [share.locks[call.lock]] if call.lock in share.locks else []
    return [lock for lock in reversed(share.locks.values()) if lock.member_id == call.member_id]


def _undo(
    share: ShareState, stored_partitions: Mapping[tuple[str, int], SharePartition], lock: Lock, call: SettleCall
) -> None:
    for granted in lock.granted:
        slot = (granted.topic, granted.partition)
        partition = share.partitions.get(slot)
        if partition is None or partition.topic_id != granted.topic_id or not _touches(call, granted):
            continue
        for offset in range(granted.first, granted.last + 1):
            is_stored = slot in stored_partitions and stored_partitions[slot].window.is_done(offset)
            if not is_stored and _is_settled(call, *slot, offset) and lock.forget_outcome(slot, offset):
                run = partition.window.reopen(offset)
                if run.state is not State.ACQUIRED:
                    run.state, run.lock, run.until_ms = State.ACQUIRED, lock.lock_id, lock.until_ms
                    run.deliveries, run.ready_ms, run.error = granted.deliveries, 0, ""
    share.look_again(lock)


def _touches(call: SettleCall, granted: Granted) -> bool:
    """Returns whether a call is about records of a range."""
    return call.outcome is not None or any(
        (settlement.topic, settlement.partition) == (granted.topic, granted.partition)
        and settlement.first <= granted.last
        and granted.first <= settlement.last
        for settlement in call.settlements
    )


def _is_settled(call: SettleCall, topic: str, partition: int, offset: int) -> bool:
    if call.outcome is not None:
        return call.outcome != Outcome.EXTEND
    return any(
        (settlement.topic, settlement.partition) == (topic, partition) and settlement.first <= offset <= settlement.last
        for settlement in call.settlements
        if settlement.outcome != Outcome.EXTEND
    )
