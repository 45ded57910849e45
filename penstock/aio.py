"""The async client of a cluster: topic management, producers, consumers, and posting whole bodies.

Assembles the parts and has no logic of its own. One client has one pool of connections; close it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack
from weakref import WeakSet

from penstock.admin.admin import Admin
from penstock.admin.table import AsyncTable
from penstock.admin.topics import TopicPartitions
from penstock.closing import AsyncClosing
from penstock.consumer.consumer import Consumer, decode_json, decode_verified, decoding
from penstock.consumer.deserializers import Deserializer, deserializers
from penstock.consumer.event_stream import EventStream, EventTerms
from penstock.consumer.fetcher import Fetcher, FetchView
from penstock.consumer.group_consumer import Callback, GroupConsumer, GroupEvents
from penstock.consumer.group_member import GroupMember, GroupTerms
from penstock.consumer.start import Start, StartPosition, find_starts
from penstock.consumer.work_queue import QueueTerms, WorkQueue
from penstock.options import ChangedOptions, ClientOptions
from penstock.processing import Process, Processor
from penstock.producer.lines import Headers
from penstock.producer.partitioners import Partitioner, PartitionerName, chooser
from penstock.producer.preparation import Interceptor, Preparation, Serializer, as_serializer
from penstock.producer.producer import Producer
from penstock.transport import api
from penstock.transport.attempts import Attempts
from penstock.transport.compression import compress, encoding_headers
from penstock.transport.exchange import Json, Query, Request, problem_from
from penstock.transport.nodes import DEFAULT_URL
from penstock.transport.transport import Token, Transport

if TYPE_CHECKING:
    from penstock.encryption.encryption import Encryption

Child = Producer | Consumer | EventStream | GroupConsumer | WorkQueue
ChildT = TypeVar("ChildT", bound=Child)


@dataclass(frozen=True)
class ClientStatistics:
    """Counts the requests of a client, including those of its producers and consumers."""

    url: str  # the node that answered last
    requests: int  # retries included
    node_changes: int  # how often the client changed to another node


class Client(AsyncClosing, Admin[Awaitable[Json]]):
    """Sends requests to a cluster: `async with Client(url) as client`.

    Topic methods make one attempt; producing and consuming retry. Several addresses are nodes of one cluster: the
    client leaves a node that is down and uses the next. It sends the token to these addresses only;
    a function gives the present one for each request.
    """

    def __init__(
        self,
        urls: str | Iterable[str] = DEFAULT_URL,
        *,
        token: Token | None = None,
        options: ClientOptions | None = None,
        cacert: str | None = None,
        encryption: Encryption | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        """Makes a client; the first request connects. `cacert` is a PEM file of CAs to trust instead of the system's.

        With `encryption`, producers and processors encrypt each value, and consumers decrypt it when it is asked for.
        Raises ValueError for an invalid address, OSError for a `cacert` that cannot be used.
        """
        self.options = options or ClientOptions()
        self._transport = Transport(urls, token, self.options, cacert)
        self._attempts = Attempts(self._transport, self.options, jitter or random.Random())
        self._topics = TopicPartitions(
            self._attempts, self.options.delivery_timeout_ms, self.options.partitions_age_ms_max
        )
        self._encryption = encryption
        self._children: WeakSet[Child] = WeakSet()

    def __repr__(self) -> str:
        return f"<Client {self._transport!r} {self._attempts!r}>"

    @property
    def url(self) -> str:
        """The node that answered last."""
        return self._transport.nodes.current_url

    def table(self, topic: str) -> AsyncTable:
        return AsyncTable(topic, self._call)

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(self.url, self._transport.requests, self._transport.nodes.changes)

    async def close(self) -> None:
        """Closes the connections. Close the producers and consumers of this client first.

        It aborts those that are still open: records without a result fail with ClientClosed, and what was read and not
        committed is delivered again.
        """
        await self._transport.close()
        for child in list(self._children):
            await child.abort()

    async def call(self, request: Request) -> Json:
        """Makes one attempt at a request of penstock.transport.api or penstock.admin.api. Returns its JSON document."""
        return (await self._transport.send(request)).json()

    def producer(
        self,
        *,
        partitioner: PartitionerName | Partitioner = "key_hash",
        key_serializer: str | Serializer | None = None,
        value_serializer: str | Serializer | None = None,
        interceptors: Sequence[Interceptor] = (),
        headers: Headers = (),
        **changed: Unpack[ChangedOptions],
    ) -> Producer:
        """Makes a producer with the client's options, except for those named: `client.producer(linger_ms=0)`.

        `partitioner` is key_hash, sticky, round_robin or a function. A serializer is json, string, bytes, the name of
        an installed one, or an object. Interceptors see every record before it is sent and when it has its result.
        `headers` are those of every record that has none of their name.
        """
        options = self.options.changed("producer", changed)
        attempts = Attempts(self._transport, options, self._attempts.jitter)
        preparation = Preparation(
            as_serializer(key_serializer), as_serializer(value_serializer), interceptors, headers, self._encryption
        )
        return self._keep(Producer(attempts, self._topics, options, chooser(partitioner), preparation))

    def consume(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Start = "earliest",
        topic_id: str | None = None,
        follow: bool = True,
        filters: Sequence[str] = (),
        min_bytes: int | None = None,
        max_records: int | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        first_topics: str | Iterable[str] | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> Consumer:
        """Reads a topic: `async for record in client.consume("flights")`.

        `start` is "earliest", "latest", a time (datetime or RFC 3339), an offset, or offsets per partition as
        positions() returns them. With `topic_id`, which the consumer has too, these are of no other topic of that name.
        Without `follow`, the consumer ends at the log ends of its start. `filters` has conditions, such as
        `header.type=order.paid`; the node sends the records that meet all of them. A long poll waits for `min_bytes` of
        a partition, and brings at most `max_records`. A deserializer is json, string, the name of an installed one, or
        an object; `record.decoded()` calls it. With encryption, a value that was first sent
        to another topic is refused; `first_topics` names the topics that are accepted instead. Further names change
        options: `fetch_bytes_max`, `fetch_wait_ms`, `out_of_range`, ... Raises ValueError for an unknown deserializer,
        and for `first_topics` without encryption.
        """
        options = self.options.changed("consume", changed)
        given = {"filter": tuple(filters) or None, "min_bytes": min_bytes, "max_records": max_records}
        query: Query = {name: value for name, value in given.items() if value is not None}
        made = deserializers(key_deserializer, value_deserializer, self._encryption, first_topics)
        if options.verify_crc:
            view, decode = FetchView(api.BATCH_TYPE, query, follow), decode_verified
        else:
            view, decode = FetchView(api.JSON_TYPE, {**query, "value": "json"}, follow), decode_json

        async def open_fetcher() -> tuple[Fetcher, list[StartPosition]]:
            return await self.fetcher(topic, partitions, start, view, options, topic_id=topic_id)

        return self._keep(Consumer(topic, open_fetcher, decode if made is None else decoding(decode, made)))

    def consumer(
        self,
        *,
        group: str,
        topics: str | Iterable[str] = (),
        topics_pattern: str | None = None,
        topics_exclude: str | None = None,
        member_id: str | None = None,
        auto_commit: bool = True,
        auto_commit_ms: int | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int | None = None,
        poll_interval_ms_max: int = 300_000,
        max_records: int | None = None,
        filters: Sequence[str] = (),
        min_bytes: int | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        first_topics: str | Iterable[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> GroupConsumer:
        """Reads topics as a member of a consumer group: `async with client.consumer(...) as consumer`.

        A record is finished when the next one is asked for. With `auto_commit`, asking for the next delivery commits
        the last; otherwise `await consumer.commit()` does, and the group's setting `auto_commit` becomes false for all
        members. With `auto_commit_ms` the finished records of a long delivery are committed this often. A member that
        calls again with its own `member_id` keeps its partitions. A caller that asks for nothing during
        `poll_interval_ms_max` loses them. `max_records` is the most a delivery has. `filters` has conditions, as in
        consume(). `topics_pattern` is a regular expression (RE2) for complete names of topics, beside `topics`;
        `topics_exclude` leaves some of them out. `min_bytes` and the deserializers are those of consume(). Further
        names change options: `fetch_wait_ms`, `fetch_bytes_max`, `unreachable_timeout_ms`. Raises ValueError with
        `verify_crc`, and for `auto_commit_ms` without `auto_commit`.
        """
        options = self.options.changed("consumer", changed)
        if auto_commit_ms is not None and not auto_commit:
            raise ValueError("auto_commit_ms needs auto_commit")
        if options.verify_crc:
            raise ValueError("verify_crc needs stored batches, and a poll of a group answers in JSON")
        terms = GroupTerms(
            group,
            (topics,) if isinstance(topics, str) else tuple(topics),
            member_id or f"python-{self._attempts.jitter.getrandbits(64):016x}",
            auto_commit,
            session_timeout_ms,
            rebalance_timeout_ms,
            max_records,
            tuple(filters),
            topics_pattern,
            topics_exclude,
            min_bytes=min_bytes,
            deserializers=deserializers(key_deserializer, value_deserializer, self._encryption, first_topics),
        )
        member = self.group_member(terms, options)
        events = GroupEvents(on_assigned, on_revoked)
        return self._keep(GroupConsumer(member, poll_interval_ms_max, events, auto_commit_ms))

    def events(
        self,
        topic: str,
        *,
        start: Literal["earliest", "latest"] = "latest",
        position: str = "",
        filters: Sequence[str] = (),
        url: str = "",
        **changed: Unpack[ChangedOptions],
    ) -> EventStream:
        """Follows a topic over one connection: `async for record in client.events("flights")`.

        `position` is that of an earlier stream, to continue after it. `url` is a signed URL of the topic's records, for
        a client without a token. With `out_of_range` other than "fail" the stream goes on with a topic that was created
        again. consume() is faster.
        """
        options = self.options.changed("events", changed)
        attempts = Attempts(self._transport, options, self._attempts.jitter)
        made = deserializers(None, None, self._encryption, None)
        terms = EventTerms(topic, start, position, tuple(filters), url, made)
        return self._keep(EventStream(self._transport, attempts, terms, options.out_of_range))

    def queue(
        self,
        group: str,
        *,
        topics: str | Iterable[str] = (),
        member_id: str | None = None,
        max_records: int = 1,
        lock_ms: int | None = None,
        is_extending: bool = False,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        first_topics: str | Iterable[str] | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> WorkQueue:
        """Takes single records of a share group: `async with client.queue("mail", topics="jobs") as queue`.

        `async for record in queue` takes up to `max_records` at once; each is locked for `lock_ms`, by default the
        group's, and needs an outcome: `await record.accept()`, or `async with record`, which releases it if an
        exception ends the block, and with `is_extending` keeps it locked meanwhile. A record that its deserializer
        refuses is rejected.
        """
        terms = QueueTerms(
            group,
            (topics,) if isinstance(topics, str) else tuple(topics),
            member_id or f"python-{self._attempts.jitter.getrandbits(64):016x}",
            max_records,
            lock_ms,
            is_extending,
            deserializers=deserializers(key_deserializer, value_deserializer, self._encryption, first_topics),
        )
        return self.work_queue(terms, self.options.changed("queue", changed))

    def work_queue(self, terms: QueueTerms, options: ClientOptions) -> WorkQueue:
        """Returns what queue() does, for terms that it has no argument for."""
        return self._keep(WorkQueue(Attempts(self._transport, options, self._attempts.jitter), terms, options))

    def processor(
        self,
        *,
        group: str,
        topics: str | Iterable[str],
        process: Process,
        outputs: Mapping[str, int],
        member_id: str | None = None,
        max_records: int | None = None,
        filters: Sequence[str] = (),
        first_topics: str | Iterable[str] | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> Processor:
        """Makes a processor that stores the outputs of each record exactly once: `await processor.run()`.

        `process` gets a Record and returns an iterable of Output; it may be a coroutine function. `outputs` has the
        number of partitions of each output topic: outputs with a key go to one of these, also after the topic has
        grown. The other arguments are those of consumer(). `batch_bytes` is the most a request has, unless the outputs
        of one record need more.
        """
        options = self.options.changed("processor", changed)
        consumer = self.consumer(
            group=group,
            topics=topics,
            member_id=member_id,
            max_records=max_records,
            filters=filters,
            first_topics=first_topics,
            **changed,
        )
        attempts = Attempts(self._transport, options, self._attempts.jitter)
        return Processor(consumer, attempts, options, group, process, outputs, self._encryption)

    def group_member(self, terms: GroupTerms, options: ClientOptions) -> GroupMember:
        """Returns the calls of a member, for a consumer that this client has no method for."""
        return GroupMember(Attempts(self._transport, options, self._attempts.jitter), terms, options)

    async def fetcher(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        start: Start,
        view: FetchView,
        options: ClientOptions,
        ends: Mapping[int, int] | None = None,
        topic_id: str | None = None,
    ) -> tuple[Fetcher, list[StartPosition]]:
        """Returns the fetcher of a consumer, whose answers are undecoded, and the start of each partition.

        If `view` does not follow, each partition in `ends` ends before that offset, or at its present end if that is
        lower.
        """
        give_up_ms = options.unreachable_timeout_ms
        attempts = Attempts(self._transport, options, self._attempts.jitter)
        topics = TopicPartitions(attempts, give_up_ms, options.partitions_age_ms_max)
        growth = topics.load if partitions is None and view.is_following else None
        if partitions is None:
            partitions = range(await topics.load(topic))
        starts = await find_starts(attempts, topic, partitions, start, give_up_ms)
        if ends is not None:
            starts = [start.ending_at(ends.get(start.partition, start.end)) for start in starts]
        return Fetcher(attempts, topic, starts, view, options, growth, topic_id), starts

    async def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Retries by the options, unlike describe_topic().

        Raises ProblemError if the topic does not exist.
        """
        return await self._topics.load(topic)

    async def post_records(
        self,
        topic: str,
        body: bytes,
        content_type: str = api.NDJSON_TYPE,
        *,
        partition: int | None = None,
        key: str | None = None,
        key_pointer: str | None = None,
        ndjson: str | None = None,
        idempotency_key: str | None = None,
        expected_end: int | None = None,
        fencing_token: str | None = None,
        source: str | None = None,
        source_positions: tuple[int, int] | None = None,
    ) -> Json:
        """Posts a body that is in a form of the contract, and returns the produce answer. Retries by the options.

        For bulk data: nothing is parsed or batched here. With an `idempotency_key`, retries never create duplicates.
        With `expected_end`, the partition's log must end there; with `fencing_token`, the partition's token must be
        this one. With `source` and its first and last `source_positions`, each position is stored once; retries
        never create duplicates. Raises ProblemError if any partition failed: the first problem of the answer.
        Raises ValueError on a client with encryption, because the body would be stored as it is.
        """
        if self._encryption is not None:
            raise ValueError("post_records() does not encrypt: use a producer, or a client without encryption")
        options = {"key": key, "key_pointer": key_pointer, "ndjson": ndjson}
        query: dict[str, str | int] = {name: value for name, value in options.items() if value is not None}
        query |= {"acks": self.options.acks, "timeout_ms": self.options.ack_timeout_ms}
        compression = self.options.compression
        headers = api.produce_conditions(idempotency_key, expected_end, fencing_token, source, source_positions)
        headers |= encoding_headers(compression)
        if compression != "none":  # in a thread, because a body of bulk data may be many MiB
            body = await asyncio.to_thread(compress, body, compression)
        request = api.produce(topic, body, content_type, partition=partition, query=query, headers=headers)
        deadline = asyncio.get_running_loop().time() + self.options.delivery_timeout_ms / 1000
        is_safe = idempotency_key is not None or expected_end is not None or source is not None
        answer = await self._attempts.send(request, deadline, is_repeatable=is_safe)
        document = answer.json()
        for result in document.get("results", ()):
            if "problem" in result:
                raise problem_from(result["problem"], result.get("status", answer.status), answer.headers)
        return document

    def _keep(self, child: ChildT) -> ChildT:
        """Notes a producer or consumer, which close() aborts. Raises ClientClosed."""
        self._transport.check_open()
        self._children.add(child)
        return child

    def _call(self, request: Request) -> Awaitable[Json]:
        return self.call(request)
