"""A worker of a consumer group with Python's standard library only.

usage: PENSTOCK_URL=http://127.0.0.1:8080 python worker.py GROUP TOPIC MEMBER
"""

import contextlib
import json
import os
import signal
import sys
import time
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

group, topic, member = sys.argv[1:]
url = f"{os.environ['PENSTOCK_URL']}/v1/groups/{group}/members/{member}"


def poll(token: str) -> dict:
    body = json.dumps({"topics": [topic], "token": token, "wait_ms": 20_000})
    request = Request(f"{url}/poll", body.encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:  # an answer too: a problem with a code
        return json.load(error)


def work(record: dict) -> None:
    print(json.dumps(record["value"]), flush=True)


def run() -> None:
    token = ""
    while True:
        try:
            answer = poll(token)
        except (OSError, HTTPException, ValueError):
            time.sleep(1)
            continue  # the same request once more
        if answer.get("code") == "stale_token":
            token = ""
            continue
        if not answer.get("token"):
            print(answer.get("detail"), file=sys.stderr)
            time.sleep(1)
            continue
        for partition in answer["partitions"]:
            for record in partition.get("records", []):
                work(record)
        token = answer["token"]  # the next poll commits these records


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    run()
finally:
    with contextlib.suppress(OSError):
        urlopen(Request(url, method="DELETE"), timeout=10)  # the other members get the partitions at once
