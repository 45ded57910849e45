"""The load of a run: producers and consumers of every kind at every partition, about 200 records a second in total.

The producers of a partition start at different nodes. So an acknowledgement shows that the partition is available, even
if one client's node is not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.clients.node_client import NodeClient, now, open_session
from tests.chaos.clients.producers import GIVE_UP_S, KINDS, Library
from tests.checking.history import History, Polled, Refused

EVERY_S = 0.1
POLL_PAUSE_S = 0.05
WAIT_MS = 300
ACKS_ALL = ("plain", "sequenced", "keyed")
SWITCH_EVERY = 3  # polls of a simple consumer before it changes nodes
ANY_NODE = 0  # recorded as the node of an answer with an epoch, since an epoch has one leader
LEADER_EPOCH = "Penstock-Leader-Epoch"


class Load:
    """`history` and `codes` grow during the run. `errors` has what users of the client library had to handle."""

    def __init__(self, topic: str, partitions: int, urls: list[str]) -> None:
        self.history, self.codes = History(), Counter[str]()
        self._topic, self._partitions, self._urls = topic, partitions, urls
        self._libraries: list[Library] = []
        self._consumers: list[Consumer] = []

    @property
    def errors(self) -> Counter[str]:
        return sum((library.errors for library in self._libraries), Counter[str]())

    @property
    def skew_seen_ms(self) -> int:
        return max((consumer.skew_seen_ms for consumer in self._consumers), default=0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the clients. On exit they end their pending requests; the result of unanswered ones stays unknown."""
        stopping = asyncio.Event()
        async with open_session() as session:
            runs = []
            for partition in range(self._partitions):
                for number, kind in enumerate((*ACKS_ALL, "plain")):
                    acks = "all" if number < len(ACKS_ALL) else "1"
                    client = NodeClient(session, self._urls, partition + number)
                    name = f"{kind}-{acks}-{partition}"
                    producer = KINDS[kind](name, self._topic, partition, acks, client, self.history, self.codes)
                    runs.append(producer.run(stopping, EVERY_S))
                consumer = Consumer(f"consumer-{partition}", self._topic, partition, self.history, self.codes)
                self._consumers.append(consumer)
                runs.append(consumer.run(NodeClient(session, self._urls, partition + 1), stopping))
                simple = Consumer(f"simple-{partition}", self._topic, partition, self.history, self.codes)
                simple.names_epoch = False
                runs.append(simple.run(NodeClient(session, self._urls, partition + 2), stopping))
                library = Library(f"library-{partition}", self._topic, partition, self._urls, self.history)
                self._libraries.append(library)
                runs.append(library.run(stopping, EVERY_S))
            tasks = [asyncio.create_task(run) for run in runs]
            try:
                yield
            finally:
                stopping.set()
                _, late = await asyncio.wait(tasks, timeout=GIVE_UP_S + 10)
                for task in late:
                    task.cancel()
            for task in tasks:
                if not task.cancelled() and task.done() and (error := task.exception()):
                    raise error


class Consumer:
    """Reads a partition from its beginning, at any node, with long polls.

    It names the newest epoch that it knows, so that it reads no stale data. A simple consumer names no epoch and
    changes nodes now and then.
    """

    names_epoch = True
    skew_seen_ms = 0  # between the clock that stamped a record and the local clock

    def __init__(self, name: str, topic: str, partition: int, history: History, codes: Counter[str]) -> None:
        self.name, self._partition = name, f"{topic}/{partition}"
        self._path = f"/v1/topics/{topic}/partitions/{partition}/records?wait_ms={WAIT_MS}&offset="
        self._history, self._codes = history, codes
        self.position = 0
        self._epoch_seen = self._polls = 0

    async def run(self, client: NodeClient, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await self._poll(client)
            await asyncio.sleep(POLL_PAUSE_S)

    async def _poll(self, client: NodeClient) -> None:
        """Poll once. 1. Records. 2. The node rejects the position permanently: recorded for the judges. 3. Else switch
        to another node.
        """
        asked, asked_at = self.position, now()
        headers = {LEADER_EPOCH: str(self._epoch_seen)} if self._epoch_seen and self.names_epoch else {}
        answer = await client.request("GET", f"{self._path}{asked}", None, headers)
        answered = answer.json
        if answer.status == 200:
            records = tuple((record["offset"], record["value"]) for record in answered["records"])
            for record in answered["records"]:
                self.skew_seen_ms = max(self.skew_seen_ms, abs(record["timestamp"] - time.time_ns() // 1_000_000))
            polled = Polled(
                self.name,
                self._partition,
                answer.node,
                asked,
                records,
                answered["log_start"],
                answered["high_watermark"],
                now(),
                asked_at=asked_at,
            )
            self._history.polled.append(polled)
            self.position = answered["next_offset"]
            epoch = int(answer.headers.get(LEADER_EPOCH, 0))
            self._epoch_seen = max(self._epoch_seen, epoch)
            if self.names_epoch:  # a client reads its answers in order
                self._history.watermarks.append((self._partition, ANY_NODE, epoch, answered["high_watermark"]))
            self._polls += 1
            if not self.names_epoch and self._polls % SWITCH_EVERY == 0:
                client.next_node()
            return
        self._codes[f"poll: {answer.status} {answer.code}"] += 1
        if answer.code == "offset_above_high_watermark":
            self._history.refused.append(Refused(self.name, self._partition, answer.node, asked, asked_at))
        client.next_node()
