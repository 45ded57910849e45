"""Composes one process that serves requests: the parts of the log, of replication and of the gateway.

Has no HTTP and no I/O of its own: node/processes makes and starts the parts, node/setup/listener.py serves the result.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING

from engine.directory.ceilings import Ceiling
from engine.encodings.registry import Registry
from engine.partition.shared_file_read import SharedFileReads
from engine.runtime.clock import Clock
from engine.runtime.histogram import Histogram
from engine.shard.shard import Shard
from engine.tiering.shipping.job_holds import JobHolds
from gateway.access.access import Access
from gateway.access.attempts import Attempts
from gateway.access.owners import Owners
from gateway.access.proxies import Proxies
from gateway.access.state import ChangeAccess, TenantLimits
from gateway.admin import partition_calls as admin_calls
from gateway.admin.access_routes import AccessContext
from gateway.admin.context import AdminContext, OwnerContext
from gateway.admin.disks import NodeDisks, OwnDisks
from gateway.admin.operation_calls import Operate
from gateway.admin.peer_calls import access_handlers, admin_handlers
from gateway.admin.usage_routes import UsageContext, usage_handlers
from gateway.audit.events import source_of
from gateway.audit.reading import AuditReader, audit_handlers
from gateway.audit.trail import Trail, audit_families
from gateway.audit.writer import AuditSink
from gateway.connections.long_polls import LongPolls
from gateway.connections.read_budget import ReadBudget
from gateway.connections.request_order import RequestOrder
from gateway.connections.response_buffers import ResponseBuffers, ResponseLimits
from gateway.connections.stream_budget import StreamBudget
from gateway.docs.page import DocsPages
from gateway.fetch import partition_reads, positions
from gateway.fetch.context import FetchContext, ReadContext
from gateway.fetch.multi_fetch import multi_fetch_handlers
from gateway.groups.context import GroupContext
from gateway.groups.dead_letters import copy_dead_letter
from gateway.groups.group_lag import lag_calls
from gateway.groups.hosting.answering import group_calls
from gateway.groups.hosting.classic import classic_group_calls
from gateway.groups.hosting.coordinators import Coordinators
from gateway.groups.hosting.host import GroupHost
from gateway.groups.hosting.instances import instance_calls
from gateway.groups.hosting.lags import GroupLags
from gateway.groups.share.values import DeadLetter
from gateway.groups.share_reads import share_read_calls
from gateway.http.json_limits import JsonLimits
from gateway.http.lifecycle import Lifecycle
from gateway.http.offload import Offload
from gateway.http.request import HttpContext, RequestBodies
from gateway.links.link import Handler
from gateway.links.link_client import LinkClient
from gateway.metrics.cluster_metrics import cluster_families
from gateway.metrics.loop_watch import LoopWatch
from gateway.metrics.metrics import Families, Metrics, Numbers
from gateway.metrics.node_metrics import admission_families, directory_family, time_families, topic_families
from gateway.metrics.process_metrics import background_numbers
from gateway.metrics.shard_gauges import shard_gauges
from gateway.metrics.stages import Stages
from gateway.produce.accumulator import Accumulator
from gateway.produce.context import ProduceContext
from gateway.produce.keys_in_flight import KeysInFlight
from gateway.produce.partitioner import Partitioners
from gateway.produce.peer_calls import append_handlers
from gateway.registry.registered_schemas import ANSWER_S, RegisteredSchemas
from gateway.routing.leader_failover import LeaderFailover
from gateway.routing.partitions import Partitions, TopicChanges, Topics
from gateway.routing.peers import Peers
from gateway.routing.quota_lending import QuotaLending
from gateway.routing.retry_budget import RetryBudgets
from gateway.routing.router import Router
from gateway.routing.topic_finder import Finder
from gateway.server.context import ServerContext
from gateway.settings import NodeSettings
from gateway.status.calls import status_handlers
from gateway.status.context import StatusContext
from gateway.status.job_list import JobReads
from gateway.status.observer import VERSION, Observed, Observer
from gateway.subscriptions.calls import push_calls
from gateway.subscriptions.context import PushContext
from gateway.subscriptions.core.targets import parse_targets
from gateway.subscriptions.dead_letters import DeadLetters
from gateway.subscriptions.hosting import PushHost
from gateway.subscriptions.runner import Means
from gateway.tables.tables import table_calls
from gateway.tracing.current import current
from gateway.tracing.tracer import SpanRing, Tracer
from gateway.usage.holdings import Groups, Holdings
from gateway.usage.keeper import UsageKeeper
from gateway.usage.stored_bytes import StoredBytes
from node.shard_events import NodeTier
from replication.cluster.keys import partition_name
from replication.cluster.producer_ids import ProducerIds
from replication.replica.replicas import Replicas

if TYPE_CHECKING:
    from gateway.subscriptions.sender import Sender

READ_BYTES_MAX = 128 * 1024 * 1024  # for all data that is read and rendered concurrently: 32 fetches of the usual size


class Node:
    """Composes one process of a node. `server` is what HTTP needs, `peer_handlers` the calls of other processes.

    `topic_finder` looks for topics of other nodes. `operate`, `siblings`: see AdminContext. `change_access`
    changes the rules and tokens of the coordination store, and `access_gauges` says how old they are; None and empty in
    a process that another one gives them to. `audit` takes the lines of the audit trail; None: it is switched off.
    """

    def __init__(
        self,
        settings: NodeSettings,
        shard: Shard,
        tier: NodeTier,
        changes: TopicChanges,
        peers: Peers,
        producer_ids: ProducerIds,
        clock: Clock,
        executor: Executor,
        random: Random,
        replicas: Replicas,
        partitioners: Partitioners,
        topic_finder: Finder,
        operate: Operate,
        usage: UsageKeeper,
        *,
        is_ready: bool = True,
        siblings: Callable[[], Mapping[str, LinkClient]] = dict,
        change_access: ChangeAccess | None = None,
        access_gauges: Callable[[], Iterable[tuple[str, str, float]]] = tuple,
        audit: AuditSink | None = None,
    ) -> None:
        self.settings = settings
        self.shard = shard
        self.tier = tier
        self.peers = peers
        self.clock = clock
        self.executor = executor
        self.replicas = replicas
        self.usage = usage
        self.holdings = Holdings(shard, tier, peers, self._limits)
        self.stored_bytes = StoredBytes(shard, tier, self._tenants, usage, executor, clock)
        self.lifecycle = Lifecycle(is_ready=is_ready)
        self.offload = Offload(executor)
        url = settings.schema_registry_url
        self.schemas = RegisteredSchemas(Registry(url, clock.monotonic, ANSWER_S), clock.monotonic) if url else None
        self.own_disks = OwnDisks(shard, self.offload)
        self._access_gauges = access_gauges
        proxies = Proxies(settings.trusted_proxy_words)
        self.access = Access(clock, None, frozenset(settings.superuser_names), proxies, _attempts(settings))
        self.audit = None if audit is None else self._trail(audit, proxies)
        self.metrics = Metrics(self._families)
        self.stages = Stages()
        self.spans = SpanRing()
        tracer = current.tracer = self._tracer(random)  # which links and deliveries use from now on
        self.loop_watch = LoopWatch(clock, self._histograms)
        self.long_polls = LongPolls(settings.long_polls_max, settings.long_poll_partitions_max)
        self.failover = LeaderFailover(peers, random)
        self.keys = KeysInFlight()
        self.partitioners = partitioners
        self.bodies = RequestBodies(
            settings.request_bytes_in_flight_max,
            settings.connection_bytes_in_flight_max,
            self.offload,
            self.access.check,
        )
        self.responses = ResponseBuffers(_answer_limits(settings), clock.monotonic)
        self.partitions = Partitions(shard, peers, self.replicas, self.failover)
        recorded = () if self.audit is None else (self.audit.auto_creation,)
        self.topics = Topics(
            shard, settings, changes, topic_finder, peers.count_live_nodes, self._ceiling_of, *recorded
        )
        budgets = RetryBudgets(peers, self.lifecycle, settings.leader_wait_ms, random)
        self.reads = ReadContext(
            settings,
            self.topics,
            self.partitions,
            shard.reader,
            tier,
            ReadBudget(READ_BYTES_MAX),
            ReadBudget(READ_BYTES_MAX),
            self.long_polls,
            self.lifecycle,
            self.offload,
            self.metrics,
            SharedFileReads(shard.disk, executor),
        )
        owner = OwnerContext(settings, self.partitions, peers, shard, tier, self.lifecycle, clock)
        self.groups = GroupHost(
            settings, self.topics, self.partitions, self.reads, clock, self._copy_dead_letter, self.holdings
        )
        self.holdings.groups = Groups(self.groups.held, self.groups.load)
        owners = Owners(self.access, clock)
        self.push = PushHost(self.groups, self.topics, self.partitions, owners)
        self.access.waits.include(self.push.waits)
        calls = [
            *partition_reads.partition_calls(self.reads),
            *positions.partition_calls(self.reads),
            *table_calls(self.reads, random.randbytes),
            *admin_calls.partition_calls(owner),
            *group_calls(self.groups),
            *classic_group_calls(self.groups),
            *instance_calls(self.groups),
            *push_calls(self.push),
            *lag_calls(self.reads, clock),
            *share_read_calls(self.reads),
        ]
        if settings.kafka_listen:
            from gateway.kafka.calls import kafka_calls  # only a node that has the listener pays for its import

            calls += kafka_calls(self.reads)
        self.router = Router(self.partitions, peers, budgets, calls)
        self.quota_lending = QuotaLending(self.access.quotas, peers)
        self.groups.measure_lags(GroupLags(self.topics, self.router))
        self.observer = self._observe()
        fetch, produce = self._fetch(budgets), self._produce(producer_ids, budgets)
        groups = self._groups(fetch, budgets, random)
        self._sender = _sender(settings)
        self._push_means = None
        if self._sender is not None:
            letters = DeadLetters(produce, clock)
            self._push_means = Means(self.router, self.offload, self._sender, letters, random, self.access.shown_to)
        admin = self._admin(operate, siblings)
        self.server = ServerContext(
            settings,
            peers.index,
            self._http(),
            produce,
            fetch,
            admin,
            self._status(admin, groups),
            groups,
            PushContext(groups, self._sender, owners, secrets.token_bytes),
            AccessContext(
                self.access,
                change_access,
                peers.links,
                secrets.token_bytes,
                clock,
                self.topics,
                groups.coordinators.list,
                settings.signed_url_life_max_ms,
                self.holdings,
            ),
            UsageContext(usage, self.access, peers, clock),
            self.access,
            self.audit,
            self.topics,
            self.responses,
            self.bodies,
            self.metrics,
            clock,
            random,
            tracer,
        )

    def __repr__(self) -> str:
        return f"Node({self.peers.url}, {self.peers}, {self.shard})"

    def peer_handlers(self) -> dict[str, Handler]:
        """Returns the handlers for calls of other processes, by the name of the call."""
        server = self.server
        for_kafka: Mapping[str, Handler] = {}
        if self.settings.kafka_listen:
            from gateway.kafka.calls import kafka_handlers

            for_kafka = kafka_handlers(self.reads)
        return {
            **for_kafka,
            **append_handlers(server.produce),
            **self.router.handlers(),
            **multi_fetch_handlers(self.reads),
            **admin_handlers(server.admin),
            **self.own_disks.handlers(),
            **access_handlers(self.access),
            **status_handlers(self.observer),
            **audit_handlers(self.server.status.audit),
            **usage_handlers(self.usage),
            **self.holdings.handlers(),
            **self.quota_lending.handlers(),
        }

    def start_push(self) -> None:
        """Begins to deliver the subscriptions of this process, if the operator has allowed push."""
        if self._push_means is not None:
            self.push.start(self._push_means)

    async def drain(self) -> None:
        """Reject new work, and end long polls and streams with the records they have."""
        self.lifecycle.is_refusing = True
        await self.push.stop()
        self.groups.stop()
        self.reads.placed.close()
        self.end_long_polls()
        if self.schemas is not None:
            self.schemas.close()
        if self.audit is not None:
            self.audit.close()
        await asyncio.sleep(0)

    def end_long_polls(self) -> None:
        """Ends long polls and streams. Work is still accepted: in a cluster other nodes take over."""
        self.lifecycle.drain()
        for partition in self.shard.partitions():
            partition.wake_all()

    def _observe(self) -> Observer:
        parts = Observed(
            self.settings,
            self.shard,
            self.peers,
            self.replicas,
            self.metrics,
            self.stages,
            self.loop_watch,
            self.groups,
            self.push,
            self.tier.statistics,
            self.clock,
            self.executor,
        )
        return Observer(parts)

    def _trail(self, sink: AuditSink, proxies: Proxies) -> Trail:
        node_id, cluster_id = self.settings.node_id, self.shard.directory.identity.cluster_id
        prefix = f"{node_id}.{self.peers.index}-{self.clock.now_ms():x}-a"
        return Trail(source_of(cluster_id, node_id), prefix, self.clock, sink, proxies, self.access.check)

    def _tracer(self, random: Random) -> Tracer | None:
        """Returns the tracer of this process. None: there is no collector."""
        settings, peers = self.settings, self.peers
        if not settings.otlp_endpoint:
            return None
        self.shard.committer.times.keep_recent()
        per_second = settings.trace_spans_per_second / peers.count
        process = settings.node_id, peers.index
        return Tracer(self.spans, random, settings.trace_ratio, per_second, process, time.time_ns)

    def _http(self) -> HttpContext:
        settings = self.settings
        return HttpContext(
            settings.request_body_bytes_max,
            settings.query_value_chars_max,
            settings.compress_bytes_min,
            self.bodies,
            self.offload,
            self.responses.count,
        )

    def _produce(self, producer_ids: ProducerIds, budgets: RetryBudgets) -> ProduceContext:
        settings, committer = self.settings, self.shard.committer
        return ProduceContext(
            settings,
            self.topics,
            self.partitions,
            self.partitioners,
            self.peers,
            self.router,
            self.failover,
            budgets,
            producer_ids,
            self.keys,
            RequestOrder(),
            committer,
            Accumulator(self.partitions.leader),
            self.lifecycle,
            self.bodies,
            JsonLimits(settings.json_depth_max, settings.json_number_digits_max),
            self.clock,
            self.offload,
            self.metrics,
            self.stages,
            self.usage.counting,
            self.holdings,
            self.schemas,
        )

    def _fetch(self, budgets: RetryBudgets) -> FetchContext:
        return FetchContext(
            self.settings,
            self.topics,
            self.partitions,
            self.peers,
            self.router,
            budgets,
            self.reads,
            self.long_polls,
            StreamBudget(self.settings.stream_send_buffer_bytes_max),
            itertools.count(1),
            self.access,
            self.lifecycle,
            self.offload,
            self.metrics,
            self.schemas,
        )

    def _limits(self) -> Mapping[str, TenantLimits]:
        return self.access.snapshot.limits

    def _tenants(self) -> Collection[str]:
        return self.access.snapshot.tenants

    def _ceiling_of(self, name: str) -> Ceiling | None:
        return self.access.ceiling_of(name)

    async def _copy_dead_letter(self, letter: DeadLetter) -> int:
        return await copy_dead_letter(self.server.produce, letter, self.access.shown_to)

    def _groups(self, fetch: FetchContext, budgets: RetryBudgets, random: Random) -> GroupContext:
        settings = self.settings
        return GroupContext(
            settings,
            self.topics,
            self.partitions,
            self.router,
            budgets,
            fetch,
            Coordinators(self.router, budgets, self.topics, settings, self.groups),
            self.lifecycle,
            self.clock,
            lambda: f"{random.getrandbits(128):032x}",
            self._copy_dead_letter,
        )

    def _status(self, admin: AdminContext, groups: GroupContext) -> StatusContext:
        settings, usage = self.settings, self.usage
        directory = settings.audit_directory if settings.is_audited else None
        audit = AuditReader(usage.disk, self.executor, directory)
        jobs = JobHolds(usage.store, admin.cluster_id, self.clock)
        reads = JobReads(partial(usage.in_store_thread, jobs.load_jobs))
        return StatusContext(admin, groups.coordinators, self.observer, audit, reads.read, VERSION)

    def _admin(self, operate: Operate, siblings: Callable[[], Mapping[str, LinkClient]]) -> AdminContext:
        return AdminContext(
            self.settings,
            self.topics,
            self.partitions,
            self.peers,
            self.router,
            self.replicas,
            operate,
            siblings,
            partial(_sizes, self.shard),
            NodeDisks(self.own_disks, self.peers),
            self.shard.directory.identity.cluster_id,
            self.tier.store_url,
            self.lifecycle,
            self.offload,
            self.metrics,
            DocsPages(version("penstock-server")),
        )

    def _histograms(self) -> Iterator[Histogram]:
        yield from self.stages.histograms()
        yield from self.shard.committer.times.histograms()
        yield from self.metrics.histograms()

    def _families(self) -> Families:
        sources = (
            self.bodies,
            self.responses,
            self.long_polls,
            self.peers,
            self.failover,
            self.keys,
            self.push,
            self.groups,
            self.tier,
            self.access,
            self.usage,
            self.spans,
        )
        gauges = itertools.chain(
            shard_gauges(self.shard, is_first=self.peers.index == 0),
            *(source.gauges() for source in sources),
            self._access_gauges(),
        )
        for name, text, value in gauges:
            yield Numbers(name, text, None, {"": value})
        yield from time_families(self.shard, self.stages, self.loop_watch, self.metrics.stage_exemplars)
        yield from topic_families(self.shard, self.settings.metrics_topics_max, self.clock.steady_ms())
        yield from admission_families(self.shard)
        yield from self.groups.families()
        yield from self.push.families()
        yield from audit_families(self.audit)
        yield from self.observer.families()
        if self.peers.index == 0:
            yield directory_family(self.shard)
        yield from cluster_families(self.shard, self.peers, self.replicas)
        yield background_numbers()


def _sizes(shard: Shard) -> dict[str, int]:
    """Returns the bytes of each partition on the disks of this process, by partition name."""
    return {
        partition_name(topic.record.topic_id, number): partition.log.size_bytes
        for topic in shard.topics.values()
        for number, partition in topic.partitions.items()
    }


def _sender(settings: NodeSettings) -> Sender | None:
    """Returns the client of push; None: the operator has not allowed it. Raises ValueError for a malformed setting."""
    words = settings.push_target_words
    if not words:
        return None
    from gateway.subscriptions.sender import Sender  # it imports aiohttp, a sixth of the start of a node

    return Sender(parse_targets(words, allows_http=settings.push_http))


def _attempts(settings: NodeSettings) -> Attempts | None:
    """Returns the bound of wrong credentials; None: the operator wants none."""
    per_second = settings.bad_attempts_per_second
    return Attempts(per_second, settings.bad_attempts_burst) if per_second else None


def _answer_limits(settings: NodeSettings) -> ResponseLimits:
    return ResponseLimits(
        settings.send_buffer_bytes_max,
        settings.connection_send_buffer_bytes_max,
    )
