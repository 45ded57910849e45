"""The calls on a coordinator. Every call may be repeated: it does then what it did before."""

from __future__ import annotations

from msgspec import Struct

from gateway.groups.diagnosis.activity import Activity
from gateway.groups.model.values import (
    CommitCall,
    ConfigCall,
    ForgetCall,
    Grant,
    GroupRow,
    GroupView,
    HeartbeatCall,
    LeaveCall,
    Membership,
    PollCall,
    ResetCall,
)
from gateway.groups.share.values import AcquireCall, Acquired, SettleCall, Settled, ShortenCall
from gateway.routing.router import PartitionCall


class StoredCall(Struct, frozen=True, array_like=True):
    """Waits until a decision is stored."""

    hosting: int
    sequence: int


class ChangedCall(Struct, frozen=True, array_like=True):
    """Waits until the assignment of a member changes."""

    group: str
    member_id: str
    version: int
    hosting: int
    wait_ms: int


HEARTBEAT: PartitionCall[HeartbeatCall, Membership] = PartitionCall("group_heartbeat", HeartbeatCall)
POLL: PartitionCall[PollCall, Grant] = PartitionCall("group_poll", PollCall)
STORED: PartitionCall[StoredCall, None] = PartitionCall("group_stored", StoredCall)
CHANGED: PartitionCall[ChangedCall, bool] = PartitionCall("group_changed", ChangedCall)
LEAVE: PartitionCall[LeaveCall, None] = PartitionCall("group_leave", LeaveCall)
COMMIT: PartitionCall[CommitCall, None] = PartitionCall("group_commit", CommitCall)
RESET: PartitionCall[ResetCall, None] = PartitionCall("group_reset", ResetCall)
CONFIGURE: PartitionCall[ConfigCall, bool] = PartitionCall("group_configure", ConfigCall)
DESCRIBE: PartitionCall[str, GroupView] = PartitionCall("group_describe", str)
EXPLAIN: PartitionCall[str, Activity] = PartitionCall("group_explain", str)
FORGET: PartitionCall[ForgetCall, None] = PartitionCall("group_forget", ForgetCall)
DELETE: PartitionCall[str, None] = PartitionCall("group_delete", str)
SHARE_TOPICS: PartitionCall[str, list[str]] = PartitionCall("share_topics", str)
ACQUIRE: PartitionCall[AcquireCall, Acquired] = PartitionCall("share_acquire", AcquireCall)
SETTLE: PartitionCall[SettleCall, Settled] = PartitionCall("share_settle", SettleCall)
SHORTEN: PartitionCall[ShortenCall, None] = PartitionCall("share_shorten", ShortenCall)
LIST: PartitionCall[None, list[GroupRow]] = PartitionCall("group_list", None)
