"""The series of the history: their names, what they measure, and how those of several processes become one."""

from __future__ import annotations

from typing import NamedTuple

NODE, TOPIC, GROUP = "node", "topic", "group"


class Meaning(NamedTuple):
    """`merge`: sum, max or min over processes."""

    merge: str
    unit: str
    text: str


_PER_SECOND = {
    "records_in_per_s": Meaning("sum", "records/s", "Records produced"),
    "bytes_in_per_s": Meaning("sum", "bytes/s", "Bytes of produce bodies"),
    "bytes_out_per_s": Meaning("sum", "bytes/s", "Stored bytes read for fetches"),
    "requests_per_s": Meaning("sum", "requests/s", "Requests answered"),
    "errors_per_s": Meaning("sum", "requests/s", "Requests answered with 500, 502, 504 or 507"),
    "refusals_per_s": Meaning("sum", "requests/s", "Requests answered with 429 or 503"),
    "loop_share": Meaning("max", "share", "Processor time of the event loop, of the busiest process; 1 is all of it"),
}
MEANINGS: dict[str, dict[str, Meaning]] = {
    NODE: _PER_SECOND
    | {
        "ack_p99_s": Meaning("max", "seconds", "99th percentile of the wait for acks"),
        "flush_p99_s": Meaning("max", "seconds", "99th percentile of a flush to disk"),
        "loop_lag_p99_s": Meaning("max", "seconds", "99th percentile of the delay of a timer"),
        "connections": Meaning("sum", "connections", "Open connections"),
        "requests_in_flight": Meaning("sum", "requests", "Requests without an answer yet"),
        "event_streams": Meaning("sum", "streams", "Open event streams"),
        "append_queue_bytes": Meaning("sum", "bytes", "Bytes that wait for the writer"),
        "log_bytes": Meaning("sum", "bytes", "Bytes of logs on local disks"),
        "free_bytes": Meaning("min", "bytes", "Free bytes of the fullest data directory"),
        "memory_bytes": Meaning("sum", "bytes", "Resident memory"),
        "tier_lag_s": Meaning("max", "seconds", "Age of the oldest sealed segment that is not uploaded"),
        "replica_lag_records": Meaning("max", "records", "Records that the furthest follower lacks"),
        "group_lag_records": Meaning("sum", "records", "Records that groups have not committed"),
        "group_lag_s": Meaning("max", "seconds", "Age of the oldest record that a group has not committed"),
    },
    TOPIC: {
        "records_in_per_s": Meaning("sum", "records/s", "Records written, by leaders"),
        "bytes_in_per_s": Meaning("sum", "bytes/s", "Bytes of batches written, by leaders"),
        "bytes_out_per_s": Meaning("sum", "bytes/s", "Bytes of batches read for fetches"),
        "log_bytes": Meaning("sum", "bytes", "Bytes of the log on the disks of leaders"),
    },
    GROUP: {
        "lag_records": Meaning("sum", "records", "Records that the group has not committed"),
        "lag_s": Meaning("max", "seconds", "Age of the oldest record that the group has not committed"),
    },
}
