"""`make kafka-suites`: the test suites of librdkafka and of franz-go against a node of two shards.

librdkafka's comes with the crate `rdkafka-sys`, franz-go's with its module. SKIPPED has the tests that are left out,
and why. Each test of librdkafka is a process of its own with a limit of time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.kafka.client_programs import BUILD
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process

CRATE = "4.10.0"
FRANZ_GO = "v1.22.3"
BUILD_S = 1800
TEST_S = 240
SUITE_S = 1200

TRANSACTIONS = "transactions (decision 0025)"
OLD_FORMAT = "it needs message formats before 2, which Kafka 4 has not either"
SCRIPTS = "it starts kafka-acls.sh, or kafka-topics.sh with --zookeeper"
SKIPPED = {
    "0011_produce_batch": "it counts the records without a key that an answer names; an answer names the first",
    "0028_long_topicnames": "its authors mark it as a known issue",
    "0047_partial_buf_tmout": "its authors mark it as a known issue",
    "0052_msg_timestamps": OLD_FORMAT,
    "0077_compaction": SCRIPTS,
    "0081_admin": "settings of brokers can be read only; bits of authorized operations are not answered",
    "0092_mixed_msgver": OLD_FORMAT,
    "0097_ssl_verify": "TLS of its own test cluster",
    "0098_consumer_txn": TRANSACTIONS,
    "0101_fetch_from_follower": "a broker with a rack of its own test cluster",
    "0103_transactions": TRANSACTIONS,
    "0109_auto_create_topics": SCRIPTS,
    "0115_producer_auth": SCRIPTS,
    "0119_consumer_auth": SCRIPTS,
    "0126_oauthbearer_oidc": "an issuer of its own test cluster",
    "0129_fetch_aborted_msgs": TRANSACTIONS,
    "0135_sasl_credentials": "SASL of its own test cluster",
    "0142_reauthentication": "SASL of its own test cluster",
}
SKIPPED_OF_FRANZ_GO = {
    "TestTxn.*": TRANSACTIONS,
    "TestConsumeRegex": "it looks for the topic __consumer_offsets",
}


def build_librdkafka() -> Path:
    """Returns the directory of the tests, built."""
    directory = BUILD / f"librdkafka-{CRATE}"
    tests = directory / "tests"
    if (tests / "test-runner").exists():
        return tests
    with tempfile.TemporaryDirectory() as made:
        project = Path(made)
        project.joinpath("lib.rs").touch()
        head = '[package]\nname = "fetch"\nversion = "0.1.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
        project.joinpath("Cargo.toml").write_text(f'{head}[dependencies]\nrdkafka-sys = "={CRATE}"\n')
        subprocess.run(["cargo", "vendor", "--quiet", "vendor"], check=True, cwd=project, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(project / "vendor" / "rdkafka-sys" / "librdkafka", directory)
    for script in ("configure", "lds-gen.py", "mklove/modules/configure.base"):
        if (directory / script).exists():
            (directory / script).chmod(0o755)
    for command in (
        ["./configure", "--disable-gssapi", "--disable-curl"],
        ["make", "libs"],
        ["make", "-C", "tests", "build"],
    ):
        subprocess.run(command, check=True, cwd=directory, capture_output=True, timeout=BUILD_S)
    return tests


def names_of(tests: Path) -> list[str]:
    """Returns the tests that need brokers, and no others: the rest have brokers of their own, within librdkafka."""
    table = (tests / "test.c").read_text().partition("struct test tests[] = {")[2].partition("{NULL}")[0]
    found = re.findall(r"_TEST\((\w+),\s*([A-Z0-9_| ]+)", table)
    return [name for name, flags in found if not re.search("LOCAL|MANUAL", flags) and not name.endswith("_mock")]


def run_librdkafka(servers: str, only: str) -> int:
    tests = build_librdkafka()
    tests.joinpath("test.conf").write_text(f"bootstrap.servers={servers}\ntest.topic.random=true\n")
    failed = 0
    for name in names_of(tests):
        if not name.startswith(only):
            continue
        if name in SKIPPED:
            print(f"skipped       {name}: {SKIPPED[name]}", flush=True)
            continue
        environment = {**os.environ, "LD_LIBRARY_PATH": "../src:../src-cpp", "TESTS": name}
        command = ["timeout", str(TEST_S), "./test-runner", "-Q", "-p1", "-a"]
        began = time.monotonic()
        done = subprocess.run(command, cwd=tests, env=environment, capture_output=True, text=True, check=False)
        failed += done.returncode != 0
        word = "ok" if done.returncode == 0 else "FAILED"
        print(f"{word:7}{time.monotonic() - began:5.1f} s {name}", flush=True)
        if done.returncode != 0:
            print("\n".join(done.stdout.splitlines()[-10:] + done.stderr.splitlines()[-10:]))
    return failed


def run_franz_go(servers: str, records: int) -> int:
    module = f"github.com/twmb/franz-go@{FRANZ_GO}"
    found = subprocess.run(
        ["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True, cwd="/"
    )
    source = re.search(r'"Dir": "(.*)"', found.stdout)
    assert source is not None, found.stdout
    program = BUILD / f"kgo-{FRANZ_GO}.test"
    if not program.exists():
        subprocess.run(
            ["go", "test", "-c", "-o", str(program), "./pkg/kgo"], check=True, cwd=source[1], timeout=BUILD_S
        )
    environment = {**os.environ, "KGO_SEEDS": servers, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(records)}
    environment |= {"KGO_LOG_LEVEL": "none", "KGO_TEST_MAX_TOPIC_PARTS": "7"}
    command = [str(program), "-test.v", f"-test.timeout={SUITE_S}s", "-test.skip", "|".join(SKIPPED_OF_FRANZ_GO)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=f"{source[1]}/pkg/kgo"
    )
    for name, why in SKIPPED_OF_FRANZ_GO.items():
        print(f"skipped       {name}: {why}")
    results = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", done.stdout, re.MULTILINE)
    for word, name in results:
        if word != "PASS":
            print(f"{word:7} {name}")
    print(
        f"franz-go: {sum(word == 'PASS' for word, _ in results)} tests passed, exit code {done.returncode}", flush=True
    )
    return int(done.returncode != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="the tests of librdkafka whose names begin so")
    parser.add_argument("--records", type=int, default=50_000, help="of franz-go's loops")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        servers = free_address()
        with running_process(Path(made), shards=2, kafka_listen=servers, auto_create_topics=True, default_partitions=4):
            failed = run_librdkafka(servers, options.only)
            if not options.only:
                failed += run_franz_go(servers, options.records)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
