"""Worker processes on this machine: each runs one task at a time, from a pipe to a pipe.

Processes are started with `spawn`: a fork would copy locks that other threads of this process hold, and connections to
the store. A worker ends when its pipe closes, so none outlives this process by more than its task; such a late task
writes the files that the next run writes too.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

import msgspec

from spark_ingest.execution.outcomes import TaskFailed
from spark_ingest.execution.worker import Answer, work
from spark_ingest.plan import encode


class _Worker(NamedTuple):
    process: SpawnProcess
    connection: Connection


def work_in_processes(
    specs: Sequence[bytes], count: int, source_url: str, output_url: str
) -> Iterator[tuple[int, Answer]]:
    """Yields the index of each encoded TaskSpec with its answer, in the order in which they finish.

    Raises TaskFailed if a worker dies. Ends the workers when the iterator is closed.
    """
    workers: dict[Connection, _Worker] = {}
    waiting = deque(enumerate(specs))
    at_work: dict[Connection, int] = {}
    try:
        for _ in range(min(count, len(specs))):
            worker = _start_worker(source_url, output_url)
            workers[worker.connection] = worker
            at_work[worker.connection] = _give(worker, waiting)
        while at_work:
            for ready in wait(list(at_work)):
                assert isinstance(ready, Connection)
                worker, index = workers[ready], at_work.pop(ready)
                answer = _receive(worker)
                if waiting:
                    at_work[ready] = _give(worker, waiting)
                yield index, answer
    finally:
        for worker in workers.values():
            worker.connection.close()
            worker.process.terminate()
        for worker in workers.values():
            worker.process.join()


def _start_worker(source_url: str, output_url: str) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, source_url, output_url), name="ingest worker", daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _give(worker: _Worker, waiting: deque[tuple[int, bytes]]) -> int:
    index, spec = waiting.popleft()
    try:
        worker.connection.send_bytes(spec)
    except OSError as error:
        raise _death_of(worker) from error
    return index


def _receive(worker: _Worker) -> Answer:
    try:
        data = worker.connection.recv_bytes()
    except (EOFError, OSError) as error:
        raise _death_of(worker) from error
    answer: Answer = msgspec.json.decode(data, type=Answer)
    return answer


def _death_of(worker: _Worker) -> TaskFailed:
    worker.process.join()
    code = worker.process.exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = "if memory is short, use fewer --workers; run again to resume"
    return TaskFailed(f"a worker process {how}", hint=hint)


def serve(connection: Connection, source_url: str, output_url: str) -> None:
    """Runs encoded TaskSpecs of a pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent ends us
    from spark_ingest.execution.arrow_setup import set_up_arrow

    set_up_arrow()
    with suppress(EOFError, OSError):
        while True:
            spec = connection.recv_bytes()
            connection.send_bytes(encode(work(spec, source_url, output_url)))
