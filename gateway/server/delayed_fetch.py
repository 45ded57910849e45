"""Delayed fetches: long polls that the append itself answers, without a task.

A delayed fetch is a small value among the waiters of a partition's high watermark. The advance of the high watermark
answers it in the same call: with what another poll has rendered, or from the page cache. A fetch that needs more than
that (a wait for the disk, the store, a thread or another process; an error; a large answer that is rendered) gets a
task, which runs the handler with the time that is left. It decides nothing that gateway/fetch does not decide.
Invariants: a fetch ends once, by an answer, a task or its client; nothing is counted for one that a task answers;
nothing is raised into the append.
"""

from __future__ import annotations

import asyncio
import logging
import time

from msgspec import UNSET, structs

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.batch_header import has_no_records, is_compressed
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.runtime.disk import WouldBlock
from engine.runtime.loop_waits import Bucket, loop_waits
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.connections.response_buffers import COUNTED_BYTES
from gateway.fetch.context import FetchContext
from gateway.fetch.partition_reads import cache_headers, poll_key, render
from gateway.fetch.reader import count_bytes
from gateway.fetch.record_json import Read
from gateway.fetch.rendered_cache import CachedPoll, RenderedFetch
from gateway.fetch.rendering import form_of
from gateway.fetch.request import FetchRequest
from gateway.http.caching import NO_STORE
from gateway.http.problems import Problem
from gateway.http.request import Request
from gateway.http.response import COMMON_HEADERS, REQUEST_ID_HEADER, Response
from gateway.server.head_cache import HeadCache, KnownHead, offset_of
from gateway.server.requests import Requests
from gateway.wire.connection import Connection
from gateway.wire.exchange import sendable_of
from gateway.wire.messages import NOTHING_VARIES, RequestHead, VariedHead

log = logging.getLogger("penstock.gateway")

NOW_BYTES_MAX = 32 * 1024  # of batches that are read and rendered in one call: takes less than a millisecond
STORED_BYTES_MAX = 2 * 1024 * 1024  # of batches that are read and sent as they are, in a turn of their own: as long


class DelayedFetches:
    """Takes the fetches of one application that need no task."""

    def __init__(self, heads: HeadCache, requests: Requests, context: FetchContext, compress_bytes_min: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.heads = heads
        self.requests = requests
        self.context = context
        self.reads = context.reads
        self.deadlines, self.turns = loop_waits(self.loop).deadlines, loop_waits(self.loop).turns
        self._small_bytes_max = min(COUNTED_BYTES, compress_bytes_min)  # others are counted or compressed

    def __repr__(self) -> str:
        return f"DelayedFetches({self.reads.polled})"

    def take(self, connection: Connection, stream_id: int, head: RequestHead) -> DelayedFetch | None:
        """Takes a fetch that may be answered now or later. Returns None, with nothing done, if it needs a task."""
        known, offset = self._known(head)
        if known is None or offset is None or known.place is None:
            return None
        request = None
        if self.requests.access.tokens is not None:
            request = self.heads.request(known, head, connection)
        wanted: FetchRequest = known.parsed
        partition = self._readable(wanted, known.place, request)
        if partition is None or not partition.log.local_log_start <= offset <= partition.watermark.position:
            return None
        if wanted.wait_ms and not self.reads.long_polls.has_room:
            return None
        one = DelayedFetch(self, connection, stream_id, head, known, partition, offset, request)
        one.begin(wanted.wait_ms)
        return one

    def _known(self, head: RequestHead) -> tuple[KnownHead | None, int | None]:
        """Returns the values of a head, and its offset."""
        known = head.memo
        like = head.like.memo if known is None and type(head) is VariedHead and not (head.values and head.own) else None
        if type(like) is KnownHead:
            return like, offset_of(head.query)
        known = self.heads.find(head)
        return (None, None) if known.place is None else (known, known.parsed.offset)

    def _readable(self, wanted: FetchRequest, place: tuple[str, int], request: Request | None) -> Partition | None:
        """Returns the partition if this process answers for it and the client may read it."""
        try:
            if request is not None:
                self.requests.access.check(request)
            partition = self.context.partitions.local_partition(*place)
            if partition is None or partition.offline is not None:
                return None
            if wanted.topic_id is not UNSET and wanted.topic_id != self.context.partitions.topic_id(*place):
                return None
            self.context.partitions.replica(partition).check_serves_reads(wanted.leader_epoch)
        except (Problem, EngineError, KeyError):  # KeyError: the partition is closed
            return None
        return partition

    def found(
        self, connection: Connection, partition: Partition, wanted: FetchRequest, offset: int, stored_max: int
    ) -> RenderedFetch | None:
        """Returns what `fetch_local` would answer now; None if that is large, or needs a wait or a thread.

        `stored_max` bounds the batches that are sent as they are stored.
        """
        reads, key = self.reads, None
        if offset >= partition.watermark.position:
            found = self._rendered(partition, wanted, Read(offset, None))
            return found if len(found.body) < self._small_bytes_max else None
        if reads.long_polls.open > 0 or reads.polled.size_bytes > 0:
            key = poll_key(reads, partition, wanted, offset)
            if (polled := reads.polled.get(key)) is not None:
                size_bytes = len(polled.rendered.body)
                if size_bytes >= self._small_bytes_max and not self._may_give(connection, wanted, size_bytes):
                    return None
                count_bytes(reads, partition, polled.stored_bytes)
                return polled.rendered
        chunk = self._read(connection, partition, wanted, offset, stored_max)
        if chunk is None:
            return None
        found = self._rendered(partition, wanted, Read(offset, chunk))
        size_bytes = len(found.body)
        if size_bytes >= self._small_bytes_max and not self._may_give(connection, wanted, size_bytes):
            return None
        count_bytes(reads, partition, len(chunk.data))
        if key is not None and chunk.next_offset == partition.watermark.position:
            reads.polled.put(key, CachedPoll(found, len(chunk.data)), len(found.body))
        return found

    def _may_give(self, connection: Connection, wanted: FetchRequest, size_bytes: int) -> bool:
        """Returns whether an answer that is not small is given: stored batches are, if there is room for them."""
        if wanted.media_type != record_batch.MEDIA_TYPE:
            return False
        return size_bytes < COUNTED_BYTES or self.requests.responses.has_room(connection, size_bytes)

    def _rendered(self, partition: Partition, wanted: FetchRequest, read: Read) -> RenderedFetch:
        kept = NO_STORE
        if read.chunk is not None and read.chunk.next_offset <= partition.log.sealed_end:
            kept = cache_headers(self.reads, partition, read.chunk, structs.replace(wanted, offset=read.offset))
        return render(self.reads, partition, wanted, read, form_of(wanted), kept)

    def _read(
        self, connection: Connection, partition: Partition, wanted: FetchRequest, offset: int, stored_max: int
    ) -> Chunk | None:
        """Returns a read of records from memory that can be rendered at once."""
        reads, settings = self.reads, self.reads.settings
        is_stored = wanted.media_type == record_batch.MEDIA_TYPE
        max_bytes = min(wanted.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
        max_bytes = sendable_of(connection, max_bytes)
        copies, at_most = (1, stored_max) if is_stored else (RENDERED_COPIES, NOW_BYTES_MAX)
        if offset < partition.log.local_log_start:
            return None
        if reads.local_budget.held_bytes and not reads.local_budget.has_room(max_bytes * copies):
            return None
        try:
            if data := partition.last_write.between(offset, partition.watermark.position):
                chunk: Chunk | None = Chunk(data, partition.watermark.position)
            else:
                chunk = reads.reader.read_nowait(partition, offset, max_bytes, at_most)
        except (WouldBlock, OSError, EngineError):
            return None
        if chunk is None or has_no_records(chunk.data):
            return None
        if is_stored:
            is_changed = partition.validator.fencing.has_been_used or keyed_batch.has_keyed(chunk.data)
        else:  # records of sealed segments have headers for caches
            is_changed = chunk.next_offset <= partition.log.sealed_end or is_compressed(chunk.data)
        return None if is_changed else chunk


class DelayedFetch:
    """One fetch: waits for records at `offset`, for its deadline, or for its client to leave."""

    __slots__ = ("_began", "_bucket", "_connection", "_deadline", "_fetches", "_head", "_is_over", "_known", "_offset",
                 "_partition", "_request", "_stream_id")  # fmt: skip

    def __init__(
        self,
        fetches: DelayedFetches,
        connection: Connection,
        stream_id: int,
        head: RequestHead,
        known: KnownHead,
        partition: Partition,
        offset: int,
        request: Request | None,
    ) -> None:
        self._stream_id = stream_id
        self._fetches = fetches
        self._connection = connection
        self._head = head
        self._known = known
        self._partition = partition
        self._offset = offset
        self._began = time.perf_counter()
        self._deadline = fetches.loop.time()
        self._bucket: Bucket | None = None
        self._is_over = False
        self._request = request

    def __repr__(self) -> str:
        return f"DelayedFetch({self._partition.name}, offset={self._offset}, is_over={self._is_over})"

    def begin(self, wait_ms: int) -> None:
        """Begins the wait. Records that are there already are read in the next turn of the loop."""
        fetches = self._fetches
        fetches.requests.count_begun()
        self._deadline += wait_ms / 1000
        watermark = self._partition.watermark
        if watermark.position > self._offset or wait_ms == 0 or fetches.reads.lifecycle.is_draining:
            fetches.turns.call(id(self._connection), self._answer_stored)
            return
        fetches.reads.long_polls.begin()
        self._bucket = fetches.deadlines.put(self._deadline, self, DelayedFetch._expire)
        watermark.polls.add(self._offset + 1, self)

    # As a wait for the high watermark

    def done(self) -> bool:
        return self._is_over

    def set_result(self, position: int, /) -> None:
        """Answers, if there are records or the node drains."""
        may_answer = self._partition.watermark.position > self._offset or self._fetches.reads.lifecycle.is_draining
        self._end_wait(may_answer=may_answer)

    def set_exception(self, error: Exception, /) -> None:
        """Leaves the error to a task, which meets it too."""
        self._end_wait(may_answer=False)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._fetches.loop

    # As a request of the connection

    def recheck(self) -> None:
        """Leaves the request to a task, which answers with the problem, if its client has lost the right to it."""
        try:
            if self._request is not None:
                self._fetches.requests.access.check(self._request)
        except Problem:
            self._end_wait(may_answer=False)

    def cancel(self) -> None:
        """Ends the wait: the client has left."""
        self._end()
        requests = self._fetches.requests
        request_id = requests.request_id(self._known.headers)
        requests.log.log_disconnect(self._for_log(request_id), time.perf_counter() - self._began)

    # Within

    def _expire(self) -> None:
        if not self._is_over:
            self._end_wait(may_answer=True)

    def _answer_stored(self) -> None:
        """Answers with records that are there already, in a turn of its own: stored batches may be large."""
        if not self._is_over:
            self._end_wait(may_answer=True, stored_max=STORED_BYTES_MAX)

    def _end_wait(self, *, may_answer: bool, stored_max: int = NOW_BYTES_MAX) -> None:
        """Raises nothing: the caller is the append."""
        try:
            self._finish(stored_max, may_answer=may_answer)
        except Exception as error:
            self._connection.fail(self._stream_id, error)

    def _finish(self, stored_max: int, *, may_answer: bool) -> None:
        """Gives the answer of now, or starts a task."""
        self._end()
        wanted: FetchRequest = self._known.parsed
        found = None
        if may_answer:
            try:
                found = self._fetches.found(self._connection, self._partition, wanted, self._offset, stored_max)
            except Exception:  # the task meets it too, and answers with it
                log.debug("a delayed fetch needs a task", exc_info=True)
        if found is not None:
            self._give(found)
            return
        wait_ms = max(0, round((self._deadline - self._fetches.loop.time()) * 1000))
        wanted = structs.replace(wanted, offset=self._offset, wait_ms=wait_ms)
        head = VariedHead(self._head, self._head.query, NOTHING_VARIES, (), self._head.content_length)
        head.memo = self._known._replace(parsed=wanted, began=self._began)
        self._connection.delayed.run(self._stream_id, head)

    def _end(self) -> None:
        fetches = self._fetches
        self._is_over = True
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._partition.watermark.polls.give_up(self._offset + 1, self)
            fetches.reads.long_polls.end()
        fetches.requests.count_ended()

    def _give(self, found: RenderedFetch) -> None:
        fetches, body = self._fetches, found.body
        fetches.heads.answered += 1
        request_id = fetches.requests.request_id(self._known.headers)
        headers = [
            *found.headers.items(),
            (REQUEST_ID_HEADER, request_id),
            *COMMON_HEADERS,
            ("Content-Length", str(len(body))),
        ]
        seconds = time.perf_counter() - self._began
        operation = self._known.route.operation
        fetches.requests.leave(operation, Response(body), seconds, lambda: self._for_log(request_id))
        if len(body) >= COUNTED_BYTES:
            fetches.requests.responses.give(self._connection, len(body))
        self._connection.delayed.complete(self._stream_id, 200, headers, body)

    def _for_log(self, request_id: str) -> Request:
        request = self._request or self._fetches.heads.request(self._known, self._head, self._connection)
        request.id = request_id
        return request
