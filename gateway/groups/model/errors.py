"""The errors of consumer groups. Each names, in `recover`, what a client sends next."""

from __future__ import annotations

from engine.errors import EngineError


class GroupError(EngineError):
    """Root of the failures of a group. Nothing changed."""


class UnknownGroup(GroupError):
    """No group of that name. A first member or a first commit creates it."""

    code = "unknown_group"


class UnknownMember(GroupError):
    """The group has no such member: it never joined, it left, or its session expired. Join again."""

    code = "unknown_member"


class MemberFenced(GroupError):
    """The member's epoch is not one of its present membership. Join again with epoch 0."""

    code = "member_fenced"


class StaleToken(GroupError):
    """The delivery can no longer be committed. Poll without a token; its records are delivered again."""

    code = "stale_token"


class InvalidToken(GroupError):
    """The token is damaged or belongs to another member. Send it as it was received."""

    code = "invalid_token"


class GroupNotEmpty(GroupError):
    """The group has members. Stop them, or say that they may be overruled."""

    code = "group_not_empty"


class WrongGroupKind(GroupError):
    """The call is of the other kind of groups. Use the calls of the group's kind, or another group."""

    code = "wrong_group_kind"


class NoPosition(GroupError):
    """A partition has no position, and the group's setting `start` is error. Reset the group."""

    code = "no_committed_offset"


class LockUnknown(GroupError):
    """The coordinator does not know the lock: it is of an earlier coordinator, or was over a while ago. The outcomes
    that it was given before may be stored, and their records are then not delivered again.
    """

    code = "lock_unknown"
    retryable = True
    no_side_effects = False


class GroupsFull(GroupError):
    """A limit of groups or members is reached."""

    code = "too_many_members"


class InvalidPattern(GroupError):
    """The regular expression is wrong. Correct it where `position` says."""

    code = "invalid_pattern"


class PatternsUnavailable(GroupError):
    """The node lacks the optional library for regular expressions. Install it, or name the topics."""

    code = "patterns_unavailable"


class CommitTooHigh(GroupError):
    """The position is above the high watermark. Commit what was read."""

    code = "commit_above_high_watermark"


class CoordinatorMoved(GroupError):
    """The coordinator was replaced during the call. The process that took the request starts again."""

    code = "coordinator_moved"
    retryable = True
