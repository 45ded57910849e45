"""Producers of penstock/, async and sync, in addition to those of tests/faults/reference.py."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from penstock import Client, ClientOptions
from penstock.sync import Client as SyncClient
from tests.checking.history import History
from tests.faults.reference import Job

OPTIONS = ClientOptions(batch_bytes=200, linger_ms=2, in_flight_max=5, backoff_ms=10, backoff_ms_max=250)


async def python_async(job: Job, history: History) -> None:
    """Every record is an append of its own: the client decides about batches."""
    async with Client(job.url, options=OPTIONS) as client, client.producer() as producer:
        sent = []
        for value in job.values:
            produced = history.begin(job.name, [value], job.partition, monotonic())
            sent.append((produced, await producer.send(job.topic, value, partition=job.partition)))
        for produced, delivery in sent:
            produced.acknowledge((await delivery).offset, monotonic())


async def python_sync(job: Job, history: History) -> None:
    """Run in a thread of its own: the loop's pool is small, and one of its threads may be starting the node."""
    executor = ThreadPoolExecutor(1)
    try:
        await asyncio.get_running_loop().run_in_executor(executor, _produce, job, history)
    finally:
        executor.shutdown(wait=False)


def _produce(job: Job, history: History) -> None:
    with SyncClient(job.url, options=OPTIONS) as client, client.producer() as producer:
        sent = []
        for value in job.values:
            produced = history.begin(job.name, [value], job.partition, monotonic())
            sent.append((produced, producer.send(job.topic, value, partition=job.partition)))
        for produced, delivery in sent:
            produced.acknowledge(delivery.result().offset, monotonic())
