"""Structured logs: one JSON object per line on standard error. No payloads and no secrets: no caller passes them.

Request lines go through a thread, since standard error may be a pipe whose reader is slow, and the loop must not block.
Lines that exceed the queue are dropped and counted.
"""

from __future__ import annotations

import atexit
import logging
import queue
import sys
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener

import orjson

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

REQUEST_LINES_MAX = 10_000  # queued; about 10 MB


class JsonFormatter(logging.Formatter):
    """Formats time, level, logger, message and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def set_up_logging(level: str, *, requests: bool = False) -> None:
    """Sets up logging. `requests` adds a line for each request, at any level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.raiseExceptions = False  # a line for which a full disk has no room is lost, without a traceback behind it
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("botocore", "boto3", "urllib3", "s3transfer", "kazoo"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    if requests:
        _log_requests_to(handler)


def _log_requests_to(handler: logging.Handler) -> None:
    lines: queue.Queue[logging.LogRecord] = queue.Queue(REQUEST_LINES_MAX)
    logger = logging.getLogger("penstock.requests")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [_NonBlockingHandler(lines)]
    listener = QueueListener(lines, handler)
    listener.start()
    atexit.register(listener.stop)


class _NonBlockingHandler(QueueHandler):
    """Queues a line for the thread, or drops it and reports the number of dropped lines with the next one."""

    lost = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self.lost:
                record.lines_lost_before = self.lost
            self.queue.put_nowait(record)
            self.lost = 0
        except queue.Full:
            self.lost += 1
