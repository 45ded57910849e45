"""Each foreign thing is used in one place: files, clocks and randomness. (The import contracts do the same for
packages.)

An unused row below fails too, so the tables stay correct.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.architecture.sources import CODE, ROOT, Module, modules_of

pytestmark = pytest.mark.xdist_group("sources")  # one worker reads them once

# Commands, and the code that starts nodes for tests, may open any file.
COMMANDS = ("penstock.cli", "penstock.testing", "node.commands", "spark_ingest.commands")
SERVING = ("engine", "replication", "gateway", "node", "openapi", "penstock", "spark_ingest")

FILE_DOORS = {
    "engine.runtime.disk": "the log's door to the operating system",
    "engine.tiering.store.file_store": "an object store in a directory",
    "engine.tiering.store.file_tree": "the directories of that store",
    "engine.tiering.reading.cache_directory": "the cache of tiered segments; through aiofiles, off the loop",
    "engine.tiering.store.file_slice": "reads the segment file that is uploaded",
    "node.setup.setting_sources": "reads the file that --config names, and whether the TLS files can be read",
    "node.processes.process_parts": "reads the machine's boot id",
    "gateway.connections.kernel_memory": "how much memory the process has, as the kernel counts it",
    "node.processes.supervisor": "the directory of the sockets between its processes",
    "gateway.access.tokens_file": "the tokens file",
    "gateway.access.listeners.tls_context": "the files of a listener's TLS",
    "node.setup.public_listeners": "the listeners file",
    "replication.coordination.zookeeper_security": "the file with the login to ZooKeeper",
    "node.setup.watched_files": "whether the tokens file and the certificate have changed",
    "gateway.assets.files": "what browsers load, from the package",
    "openapi.contract": "the contract, from the package",
    "penstock.encryption.key_ring": "the file of a key ring",
    "spark_ingest.toml_file": "the operator's files: of a job, of column types, of a catalog and its tables",
    "spark_ingest.run_metrics": "the operator's file of metrics",
    "spark_ingest.spark.environment": "looks whether Java is there and is new enough",
    "spark_ingest.spark.packing": "the installed files that go into the archive for executors",
    "spark_ingest.spark.context": "Spark's own files: its logging, and our code for executors elsewhere",
}
FILE_FUNCTIONS = {
    *("open", "read", "write", "pread", "preadv", "pwrite", "pwritev", "close", "dup", "dup2", "sendfile"),
    *("rename", "replace", "unlink", "remove", "link", "symlink", "mkdir", "makedirs", "rmdir", "removedirs"),
    *("listdir", "scandir", "walk", "stat", "lstat", "fstat", "statvfs", "access", "chmod", "chown", "utime"),
    *("fsync", "fdatasync", "ftruncate", "truncate", "posix_fallocate", "path.exists", "path.isfile", "path.isdir"),
    *("path.islink", "path.getsize", "path.getmtime"),
}
FILE_MODULES = ("shutil", "tempfile", "fcntl", "aiofiles")
PATH_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "touch", "rglob", "hardlink_to"}

ROOTS_OF_TIME_AND_CHANCE = {
    "engine.runtime.clock": "the door to the clocks",
    "engine.tiering.store.store": "the identifiers of a store that is opened without any being given",
    "node.node": "secrets of subscriptions, which no seed may choose",
    "node.processes.server": "the composition root of a node: randomness",
    "node.processes.process_parts": "what all composition roots of a node use: identifiers",
    "node.processes.supervisor": "the composition root of a node of several processes: jitter",
    "node.processes.shard_process": "the composition root of a shard",
    "node.processes.worker_process": "the composition root of the worker",
    "penstock.aio": "the composition root of the client: jitter",
    "penstock.encryption.encryption": "what users make beside the client: data keys, nonces and the age of a key",
    "spark_ingest.data_source": "the composition root of reads, streams and writes of Spark",
    "spark_ingest.payload.avro": "a decoder is made of its options alone, in Spark's processes too",
    "spark_ingest.report": "measures how long a run takes, unless it is given a clock",
    "spark_ingest.protocol.task": "measures how long a task took, unless it is given a clock",
}
CLOCKS = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
}
CHANCE_MODULES = ("uuid", "secrets")
VALUES_NOT_CHANCE = {"uuid.UUID"}


def file_uses(module: Module) -> set[str]:
    """Return how a module touches the file system, if it does."""
    found = {
        name
        for name in module.foreign_names()
        if name == "open"
        or name.split(".")[0] in FILE_MODULES
        or (name.startswith("os.") and name.removeprefix("os.") in FILE_FUNCTIONS)
    }
    return found | (module.called_methods() & PATH_METHODS)


def time_and_chance_uses(module: Module) -> set[str]:
    """Return where a module gets the time, an identifier or a random number from the machine.

    Measuring a duration (`perf_counter`) decides nothing and is allowed. The type `Random` is allowed too; creating one
    is not, since that chooses its seed.
    """
    names = module.foreign_names()
    clocks = names & CLOCKS
    chance = {name for name in names if name.split(".")[0] in CHANCE_MODULES and "." in name} - VALUES_NOT_CHANCE
    random = {name for name in names if name.startswith("random.") and name.split(".")[1].islower()}
    made = module.called_names() & {"random.Random", "random.SystemRandom", "os.urandom"}
    return clocks | chance | random | made


def strangers(uses: Mapping[str, set[str]], doors: Mapping[str, str]) -> list[str]:
    return [f"{name} uses {', '.join(sorted(found))}" for name, found in uses.items() if found and name not in doors]


def unneeded(uses: Mapping[str, set[str]], doors: Mapping[str, str]) -> list[str]:
    return [name for name in doors if not uses.get(name)]


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return [module for module in modules_of(ROOT, SERVING) if not module.name.startswith(COMMANDS)]


@pytest.fixture(scope="module")
def files(modules) -> dict[str, set[str]]:
    return {module.name: file_uses(module) for module in modules}


@pytest.fixture(scope="module")
def times(modules) -> dict[str, set[str]]:
    return {module.name: time_and_chance_uses(module) for module in modules}


def test_only_doors_touch_files(files):
    """Use engine.runtime.disk.Disk, an ObjectStore, or a value that the composition root has read."""
    assert strangers(files, FILE_DOORS) == []


def test_only_composition_roots_read_clocks_and_make_identifiers_and_randomness(times):
    """Take a Clock, a Random or a `new_id` as an argument, so that a test and a simulation can pass theirs."""
    assert strangers(times, ROOTS_OF_TIME_AND_CHANCE) == []


def test_the_linter_bans_the_direct_calls_and_names_what_to_use_instead():
    """The linter reports while one types; these tests find more, such as a clock that is only passed on."""
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    banned = ruff["flake8-tidy-imports"]["banned-api"]
    assert {"time.time", "uuid.uuid4", "random.random"} <= banned.keys()
    assert all(len(rule["msg"]) > 20 for rule in banned.values())


def test_no_door_is_listed_in_vain(files, times):
    assert unneeded(files, FILE_DOORS) == []
    assert unneeded(times, ROOTS_OF_TIME_AND_CHANCE) == []


def planted(text: str) -> Module:
    return Module("engine.planted", Path("engine/planted.py"), text)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.open('x', 0)",
        "from os import rename\nrename('a', 'b')",
        "import os as o\no.path.getsize('x')",
        "with open('x') as f: pass",
        "from pathlib import Path\nPath('x').write_text('')",
        "import shutil\nshutil.rmtree('x')",
    ],
)
def test_a_planted_file_call_is_found(text):
    assert file_uses(planted(text))


@pytest.mark.parametrize("text", ["disk.open('x')", "import os\nos.path.join('a', 'b')", "import os\nos.getpid()"])
def test_what_touches_no_file_is_left_alone(text):
    assert not file_uses(planted(text))


@pytest.mark.parametrize(
    "text",
    [
        "import time\nage = time.time()",
        "from time import time_ns as now\nnow()",
        "from datetime import datetime\ndatetime.now()",
        "import uuid\nx = uuid.uuid4().hex",
        "from uuid import uuid4\nuuid4()",
        "import random\nrandom.choice([1])",
        "from random import Random\nRandom()",
        "import secrets\nsecrets.token_hex()",
        "import time\ndef f(clock=time.monotonic): pass",
    ],
)
def test_a_planted_clock_or_chance_is_found(text):
    assert time_and_chance_uses(planted(text))


@pytest.mark.parametrize(
    "text",
    [
        "from random import Random\ndef f(random: Random): return random.choice([1])",
        "import time\nstarted = time.perf_counter()",
        "def f(clock): return clock.now_ms()",
    ],
)
def test_time_and_chance_as_arguments_are_left_alone(text):
    assert not time_and_chance_uses(planted(text))


def test_the_tree_that_is_looked_at_is_the_whole_tree():
    """Every rule would hold for an empty list of modules."""
    for package in CODE:
        assert len(modules_of(ROOT, (package,))) > 1 or package == "loadtests", package
