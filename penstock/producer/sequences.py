"""The sequence numbers of one partition's batches, with which the node stores each once and in order.

Pure: from what was sent and the outcomes it decides what may be sent next. It has no clock, HTTP or records: an item is
what the driver (penstock/producer/sequenced_lane.py) sends in one request, and `count` is its number of records.

Sequences count records. Requests use several connections, so they may arrive in another order. The node rejects a batch
that is not the next one (a *gap*); it is retried when all before it are stored.

When a batch fails permanently, those behind it can never be stored under their numbers. The epoch is raised (KIP-360):
1. No new batch is sent until the outcome of every batch in flight is known. A batch of unknown outcome is retried under
   its old numbers, because under new ones it could be stored twice.
2. Batches that were not stored are numbered from 0 in the next epoch and sent in the old order.
3. A batch that may still arrive, behind a failed one that may still arrive too, is given up as *ambiguous*: both could
   arrive, and a retry would then store it twice.

Invariants: a number of an epoch always names the same records; at most `in_flight_max` batches are in flight; in a new
epoch, or after a pause, the first batch is sent alone, because a node that has forgotten a producer accepts any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

EPOCH_MAX = 32_767
IN_FLIGHT_MAX = 16  # the node remembers this many batches of a producer; a retried batch must be among them
_SEQUENCES = 2**31

ItemT = TypeVar("ItemT")


class Numbers(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int  # of the first record


class Sent(Generic[ItemT]):
    """Holds a batch that was sent: in flight, or held until its retry."""

    __slots__ = ("is_alone", "is_ambiguous", "is_in_flight", "is_repeated", "item", "may_arrive", "numbers", "resend")

    def __init__(self, item: ItemT, numbers: Numbers, *, is_alone: bool) -> None:
        self.item = item
        self.numbers = numbers
        self.is_in_flight = True
        self.is_alone = is_alone  # every batch before it was stored when it was sent
        self.is_repeated = False
        self.is_ambiguous = False  # an attempt may have stored it, and no later answer has decided that
        self.may_arrive = False  # an attempt was never answered and may still reach the node
        self.resend: list[ItemT] | None = None  # permanently rejected: the items to send in its place, if any

    def __repr__(self) -> str:
        state = "in flight" if self.is_in_flight else "rejected" if self.resend is not None else "held"
        return f"<Sent {self.numbers} {state}{' ambiguous' if self.is_ambiguous else ''}>"


class Drained(NamedTuple, Generic[ItemT]):
    """Holds the remaining items once every batch in flight has an outcome."""

    resend: list[ItemT]  # to be sent before all others, in this order
    ambiguous: list[ItemT]  # failed, but possibly stored


class Pipeline(Generic[ItemT]):
    def __init__(self, in_flight_max: int) -> None:
        assert 1 <= in_flight_max <= IN_FLIGHT_MAX
        self._in_flight_max = in_flight_max
        self._sent: list[Sent[ItemT]] = []  # in the order of their numbers
        self._producer_id: int | None = None
        self._epoch = 0
        self._next_sequence = 0
        self._is_open = False  # the node is known to have this epoch
        self._is_draining = False
        self._is_id_lost = False
        self.lost_id: int | None = None  # unusable, so another id is needed

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
        """Continues under a new id, which no partition has seen."""
        assert self._producer_id is None
        assert not self._sent
        self._producer_id, self._epoch, self._next_sequence, self._is_open = producer_id, epoch, 0, False

    def narrow(self) -> None:
        """Limits the next send to one batch. For use after a pause: the node may have expired the producer."""
        self._is_open = False

    def can_take(self) -> bool:
        """True if a new batch may be sent. Never behind a retried one: the node would only reject it."""
        if self._producer_id is None or self._is_draining:
            return False
        depth = self._in_flight_max if self._is_open else 1
        return len(self._sent) < depth and all(sent.is_in_flight and not sent.is_repeated for sent in self._sent)

    def take(self, item: ItemT, count: int) -> Sent[ItemT]:
        assert self.can_take()
        assert self._producer_id is not None
        numbers = Numbers(self._producer_id, self._epoch, self._next_sequence)
        self._next_sequence = (self._next_sequence + count) % _SEQUENCES
        sent = Sent(item, numbers, is_alone=not self._sent)
        self._sent.append(sent)
        return sent

    def next_retry(self) -> Sent[ItemT] | None:
        """Returns the one held batch that may be retried now, or None."""
        for sent in self._sent:
            if sent.is_in_flight:
                return None
            if not self._is_draining or sent.is_ambiguous:
                return sent
        return None

    def retry(self, sent: Sent[ItemT]) -> None:
        assert sent is self.next_retry()
        sent.is_in_flight = sent.is_repeated = True
        sent.is_alone = sent is self._sent[0]

    def on_stored(self, sent: Sent[ItemT]) -> None:
        """Removes a batch that is stored, now or by an earlier attempt. All batches before it are stored too."""
        self._sent.remove(sent)
        self._is_open = True

    def on_held(self, sent: Sent[ItemT], *, is_ambiguous: bool) -> None:
        """Holds a batch after a temporary failure. `is_ambiguous`: the attempt may have stored it, or still may."""
        sent.is_in_flight = False
        if is_ambiguous:
            sent.is_ambiguous = sent.may_arrive = True

    def on_gap(self, sent: Sent[ItemT]) -> None:
        """Holds a batch that the node rejected because earlier ones are missing: it is not stored.

        It waits for the batches before it. If there are none, the node has lost its state: the next epoch begins.
        """
        sent.is_in_flight = sent.is_ambiguous = False
        if sent.is_alone and not self._is_draining:
            self.on_rejected(sent, [sent.item])

    def on_rejected(self, sent: Sent[ItemT], resend: Sequence[ItemT] = ()) -> None:
        """Gives up a batch under its numbers. `resend` is sent in its place; if empty, the batch failed."""
        sent.may_arrive = sent.may_arrive or sent.is_ambiguous
        sent.is_in_flight = sent.is_ambiguous = False
        sent.resend = list(resend)
        self._is_draining = True

    def on_id_lost(self, sent: Sent[ItemT]) -> None:
        """Gives up the producer id, which the node does not know: its address now belongs to another log."""
        self._is_id_lost = True
        self.on_rejected(sent, [sent.item])

    def drain(self) -> Drained[ItemT] | None:
        """Raises the epoch if that is due and no batch is in flight. Returns the remaining items, or None."""
        if not self._is_draining or any(sent.is_in_flight or sent.is_ambiguous for sent in self._sent):
            return None
        rest: Drained[ItemT] = Drained([], [])
        may_failed_one_arrive = False
        for sent in self._sent:
            if sent.resend is not None:
                rest.resend.extend(sent.resend)
                may_failed_one_arrive = may_failed_one_arrive or (sent.may_arrive and not sent.resend)
            elif sent.may_arrive and may_failed_one_arrive:
                rest.ambiguous.append(sent.item)
            else:
                rest.resend.append(sent.item)
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
