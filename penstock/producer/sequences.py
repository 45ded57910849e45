"""The numbers under which one partition's batches are sent, so that the node stores each once and in order.

Pure: told what was sent and what came of it, it says what may be sent next. It knows no clock, no HTTP, no records:
an item is whatever the driver (penstock/producer/sequenced_lane.py) sends in one request, `count` its records.

Sequences count records. Requests travel on several connections, so they may arrive in another order; the node refuses
what is not next (a *gap*), and what was refused goes out again when all before it is stored.

When a batch fails for good, those behind it can never be stored under their numbers. The epoch is raised (KIP-360):
1. Nothing new is sent until the fate of every batch under way is known; one of unknown fate is asked for again, under
   its old numbers, because under new ones it could be stored twice.
2. What was not stored is numbered anew in the next epoch, from 0, and goes out in the old order.
3. A batch that may still be on its way, behind one that failed and may still be on its way too, is given up as
   *doubtful*: both could yet arrive, and then it would be there twice.

Invariants: a number of an epoch names the same records for ever; at most `in_flight_max` batches are under way; in a
new epoch, or after a pause, the first goes alone, because a node that knows nothing of a producer takes any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

EPOCH_MAX = 32_767
IN_FLIGHT_MAX = 16  # the node remembers so many batches of a producer; one that is asked for again must be among them
_SEQUENCES = 2**31

ItemT = TypeVar("ItemT")


class Numbers(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int  # of the first record


class Sent(Generic[ItemT]):
    """A batch under way: asked, with an answer to come, or held until its turn."""

    __slots__ = ("again", "is_alone", "is_asked", "is_repeated", "is_unknown", "item", "may_arrive", "numbers")

    def __init__(self, item: ItemT, numbers: Numbers, *, is_alone: bool) -> None:
        self.item = item
        self.numbers = numbers
        self.is_asked = True
        self.is_alone = is_alone  # everything before it was stored when it was asked
        self.is_repeated = False
        self.is_unknown = False  # an attempt may have stored it, and no answer since has told
        self.may_arrive = False  # an attempt of it was never answered, and may yet come to the node
        self.again: list[ItemT] | None = None  # refused for good: what goes out in its place, if anything

    def __repr__(self) -> str:
        state = "asked" if self.is_asked else "refused" if self.again is not None else "held"
        return f"<Sent {self.numbers} {state}{' unknown' if self.is_unknown else ''}>"


class Drained(NamedTuple, Generic[ItemT]):
    """What is left when everything under way has its fate."""

    again: list[ItemT]  # to be sent before anything else, in this order
    doubtful: list[ItemT]  # failed, and perhaps stored all the same


class Pipeline(Generic[ItemT]):
    def __init__(self, in_flight_max: int) -> None:
        assert 1 <= in_flight_max <= IN_FLIGHT_MAX
        self._in_flight_max = in_flight_max
        self._sent: list[Sent[ItemT]] = []  # in the order of their numbers
        self._producer_id: int | None = None
        self._epoch = 0
        self._next_sequence = 0
        self._is_open = False  # the node is known to know this epoch
        self._is_draining = False
        self._is_id_lost = False
        self.lost_id: int | None = None  # no longer of use, so another is needed

    def __repr__(self) -> str:
        state = " draining" if self._is_draining else "" if self._is_open else " narrow"
        return f"<Pipeline id={self._producer_id} epoch={self._epoch} next={self._next_sequence}{state} {self._sent}>"

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[Sent[ItemT]]:
        return iter(self._sent)

    @property
    def needs_id(self) -> bool:
        return self._producer_id is None

    def begin(self, producer_id: int, epoch: int = 0) -> None:
        """Go on under a fresh id, which no partition knows yet."""
        assert self._producer_id is None
        assert not self._sent
        self._producer_id, self._epoch, self._next_sequence, self._is_open = producer_id, epoch, 0, False

    def narrow(self) -> None:
        """After a pause: the node may have forgotten the producer, so the next batch goes alone."""
        self._is_open = False

    def can_take(self) -> bool:
        """Whether a new batch may go out: never behind one that had to be repeated, which would only be refused."""
        if self._producer_id is None or self._is_draining:
            return False
        depth = self._in_flight_max if self._is_open else 1
        return len(self._sent) < depth and all(sent.is_asked and not sent.is_repeated for sent in self._sent)

    def take(self, item: ItemT, count: int) -> Sent[ItemT]:
        assert self.can_take()
        assert self._producer_id is not None
        numbers = Numbers(self._producer_id, self._epoch, self._next_sequence)
        self._next_sequence = (self._next_sequence + count) % _SEQUENCES
        sent = Sent(item, numbers, is_alone=not self._sent)
        self._sent.append(sent)
        return sent

    def turn(self) -> Sent[ItemT] | None:
        """The one held batch that may be asked for again now."""
        for sent in self._sent:
            if sent.is_asked:
                return None
            if not self._is_draining or sent.is_unknown:
                return sent
        return None

    def ask_again(self, sent: Sent[ItemT]) -> None:
        assert sent is self.turn()
        sent.is_asked = sent.is_repeated = True
        sent.is_alone = sent is self._sent[0]

    def on_stored(self, sent: Sent[ItemT]) -> None:
        """Now or by an earlier attempt. So is everything before it, whose answers are still to come."""
        self._sent.remove(sent)
        self._is_open = True

    def on_held(self, sent: Sent[ItemT], *, is_unknown: bool) -> None:
        """The attempt failed in a way that may pass; `is_unknown`: it may have stored the batch, or may yet."""
        sent.is_asked = False
        if is_unknown:
            sent.is_unknown = sent.may_arrive = True

    def on_gap(self, sent: Sent[ItemT]) -> None:
        """The node is not that far, so the batch is not stored. It waits for those before it; if there are none, the
        node has lost what it had, and goes on with the next epoch.
        """
        sent.is_asked = sent.is_unknown = False
        if sent.is_alone and not self._is_draining:
            self.on_refused(sent, [sent.item])

    def on_refused(self, sent: Sent[ItemT], again: Sequence[ItemT] = ()) -> None:
        """Never to be stored under its numbers; `again` goes out in its place. Without: it failed."""
        sent.may_arrive = sent.may_arrive or sent.is_unknown
        sent.is_asked = sent.is_unknown = False
        sent.again = list(again)
        self._is_draining = True

    def on_id_lost(self, sent: Sent[ItemT]) -> None:
        """The node never gave this id out: another log is behind its address now."""
        self._is_id_lost = True
        self.on_refused(sent, [sent.item])

    def drained(self) -> Drained[ItemT] | None:
        """Raise the epoch, if that is due and nothing is under way any more; what is to be done with the rest."""
        if not self._is_draining or any(sent.is_asked or sent.is_unknown for sent in self._sent):
            return None
        rest: Drained[ItemT] = Drained([], [])
        may_failed_one_arrive = False
        for sent in self._sent:
            if sent.again is not None:
                rest.again.extend(sent.again)
                may_failed_one_arrive = may_failed_one_arrive or (sent.may_arrive and not sent.again)
            elif sent.may_arrive and may_failed_one_arrive:
                rest.doubtful.append(sent.item)
            else:
                rest.again.append(sent.item)
        self._sent.clear()
        self._raise_epoch()
        return rest

    def _raise_epoch(self) -> None:
        self._is_draining = self._is_open = False
        self._epoch += 1
        self._next_sequence = 0
        if self._is_id_lost or self._epoch > EPOCH_MAX:
            self.lost_id, self._producer_id = self._producer_id, None
            self._is_id_lost = False
