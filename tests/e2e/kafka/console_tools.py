"""`make kafka-clients`: Kafka's own command line tools against a node, and a table of what they did.

Maven fetches the jars, as for `make bench-peers`; Java 17 runs them. Each step has the text that its output must have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from loadtests.peers.downloads import default_cache, find_programs
from tests.e2e.kafka.test_both_doors import free_address
from tests.e2e.node_process import running_process
from tests.tokens import add_token

TOOLS = "org.apache.kafka.tools"
STEP_S = 120
RECORDS = 50_000
ACLS = f"{TOOLS}.AclCommand"
CLIENT = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="{token}";
"""


class Step(NamedTuple):
    """A tool with its arguments, what it reads, and a text that it must print. `fails`: it must not succeed."""

    tool: str
    arguments: str
    expected: str
    stdin: str = ""
    fails: bool = False


def steps(directory: Path) -> list[Step]:
    deleted = directory / "delete.json"
    deleted.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 1}))
    moved, elected = directory / "move.json", directory / "elect.json"
    moved.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
    elected.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0}]}))
    group = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    share = f"{TOOLS}.consumer.group.ShareGroupCommand"
    compatibility = (
        "--topic compatibility --offsets-for-times-supported True --cluster-id-supported True "
        "--expect-record-too-large-exception False --num-cluster-nodes 1 --create-topics-supported True "
        "--describe-acls-supported True --describe-configs-supported True --idempotent-producer-supported True"
    )
    return [
        Step(f"{TOOLS}.TopicCommand", "--create --topic t --partitions 3 --replication-factor 1", "Created topic t"),
        Step(f"{TOOLS}.TopicCommand", "--describe --topic t", "PartitionCount: 3"),
        Step(f"{TOOLS}.TopicCommand", "--alter --topic t --partitions 4", ""),
        Step("kafka.admin.ConfigCommand", "--alter --entity-type topics --entity-name t --add-config retention.ms=-1",
             "Completed updating config"),
        Step("kafka.admin.ConfigCommand", "--describe --entity-type topics --entity-name t", "retention.ms=-1"),
        Step("kafka.admin.ConfigCommand", "--describe --entity-type brokers --entity-name 1 --all", "num.partitions=1"),
        Step("kafka.admin.ConfigCommand", "--alter --entity-type topics --entity-name t --add-config "
             "cleanup.policy=[compact,delete],segment.index.bytes=1048576", "Completed updating config"),
        Step("kafka.admin.ConfigCommand", "--alter --entity-type topics --entity-name t --delete-config cleanup.policy",
             "Completed updating config"),
        Step("kafka.admin.ConfigCommand", "--alter --entity-type clients --entity-default --entity-type users "
             "--entity-default --add-config producer_byte_rate=100000000", "Completed updating"),
        Step("kafka.admin.ConfigCommand", "--describe --entity-type users --entity-default --entity-type clients "
             "--entity-default", "producer_byte_rate=1.0E8"),
        Step(f"{TOOLS}.LogDirsCommand", "--describe", '"partition":"t-0"'),
        Step(f"{TOOLS}.reassign.ReassignPartitionsCommand", f"--execute --reassignment-json-file {moved}",
             "Successfully started partition reassignment"),
        Step(f"{TOOLS}.reassign.ReassignPartitionsCommand", f"--verify --reassignment-json-file {moved}",
             "Reassignment of partition t-0 is completed"),
        Step(f"{TOOLS}.reassign.ReassignPartitionsCommand", "--list", "No partition reassignments found"),
        Step(f"{TOOLS}.LeaderElectionCommand", f"--election-type preferred --path-to-json-file {elected}",
             "Valid replica already elected"),
        Step(f"{TOOLS}.TransactionsCommand", "list", "TransactionalId"),
        Step(f"{TOOLS}.TransactionsCommand", "describe-producers --topic t --partition 0", "ProducerId"),
        Step(ACLS, "--list", "no tokens file", fails=True),
        Step(f"{TOOLS}.ConsoleProducer", "--topic t", "", "one\ntwo\n"),
        Step(f"{TOOLS}.consumer.ConsoleConsumer", "--topic t --from-beginning --max-messages 2 --group console", "two"),
        Step(f"{TOOLS}.ProducerPerformance", f"--topic t --num-records {RECORDS} --record-size 100 --throughput -1",
             f"{RECORDS} records sent"),
        Step(f"{TOOLS}.ConsumerPerformance", f"--topic t --num-records {RECORDS} --group perf --timeout 90000",
             f", {RECORDS // 10}"),
        Step(f"{TOOLS}.VerifiableProducer", "--topic t --max-messages 100", '"acked":100'),
        Step(f"{TOOLS}.VerifiableConsumer", "--topic t --group-id v --max-messages 100 --reset-policy earliest",
             "records_consumed"),
        Step(f"{TOOLS}.GetOffsetShell", "--topic t --time latest", "t:3:"),
        Step(f"{TOOLS}.GetOffsetShell", "--topic t --time max-timestamp", "t:3:"),
        Step(group, "--list", "perf"),
        Step(group, "--describe --group perf", "CURRENT-OFFSET"),
        Step(group, "--describe --group perf --state", "Empty"),
        Step(group, "--group perf --reset-offsets --to-earliest --all-topics --execute", "NEW-OFFSET"),
        Step(group, "--delete --group perf", "successful"),
        Step(f"{TOOLS}.consumer.ConsoleConsumer", "--topic t --from-beginning --max-messages 50000 --group new "
             "--consumer-property group.protocol=consumer", "Processed a total of 50000"),
        Step(group, "--describe --group new", "CURRENT-OFFSET"),
        Step(group, "--describe --group new --state --verbose", "uniform"),
        Step(f"{TOOLS}.consumer.ConsoleShareConsumer", "--topic t --group shared --max-messages 10000",
             "Processed a total of 10000"),
        Step(f"{TOOLS}.VerifiableShareConsumer", "--topic t --group-id shared --max-messages 10000",
             '"name":"offsets_acknowledged"'),
        Step(share, "--list", "shared"),
        Step(share, "--describe --group shared", "START-OFFSET"),
        Step(share, "--group shared --reset-offsets --to-earliest --topic t --execute", "NEW-OFFSET"),
        Step(share, "--group shared --delete-offsets --topic t", "Successful"),
        Step(share, "--delete --group shared", "successful"),
        Step(f"{TOOLS}.DeleteRecordsCommand", f"--offset-json-file {deleted}", "low_watermark: 1"),
        Step(f"{TOOLS}.BrokerApiVersionsCommand", "", "Produce(0): 0 to 13"),
        Step(f"{TOOLS}.TopicCommand", "--create --topic compatibility --partitions 1", "Created topic"),
        Step(f"{TOOLS}.ClientCompatibilityTest", compatibility, "SUCCESS."),
        Step(f"{TOOLS}.TopicCommand", "--delete --topic t", ""),
        Step(f"{TOOLS}.TopicCommand", "--list", ""),
    ]  # fmt: skip


def acl_steps(config: Path) -> list[Step]:
    """Returns the steps at a node with tokens; `config` has that of its superuser."""
    common = f"--command-config {config}"
    return [
        Step(ACLS, f"{common} --add --allow-principal User:shop --operation Read --topic orders --group readers",
             "Adding ACLs for resource"),
        Step(ACLS, f"{common} --add --deny-principal User:* --deny-host 10.0.0.7 --operation All --topic pay "
             "--resource-pattern-type prefixed", "permissionType=DENY"),
        Step(ACLS, f"{common} --list --principal User:shop", "operation=READ, permissionType=ALLOW"),
        Step(ACLS, f"{common} --list --topic pay1 --resource-pattern-type match", "operation=ALL, permissionType=DENY"),
        Step(ACLS, f"{common} --remove --force --allow-principal User:shop --operation Read --topic orders", ""),
        Step(ACLS, f"{common} --list --topic orders", ""),
        Step(ACLS, f"{common} --add --allow-principal User:shop --operation IdempotentWrite --cluster",
             "has no right of its own", fails=True),
        Step("kafka.admin.ConfigCommand", f"{common} --alter --entity-type users --entity-name shop --add-config "
             "consumer_byte_rate=1000000", "Completed updating"),
        Step("kafka.admin.ConfigCommand", f"{common} --describe --entity-type users --entity-name shop",
             "consumer_byte_rate=1000000.0"),
    ]  # fmt: skip


def run(jars: Path, servers: str, step: Step) -> tuple[bool, str]:
    """Runs one step. Returns whether it did what it must, and its output."""
    command = ["java", "-cp", f"{jars}/*", step.tool, "--bootstrap-server", servers, *step.arguments.split()]
    try:
        done = subprocess.run(
            command, input=step.stdin, capture_output=True, text=True, timeout=STEP_S, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return False, f"it did not end within {STEP_S} s"
    output = done.stdout + done.stderr
    return (done.returncode != 0) == step.fails and step.expected in output, output


def main() -> int:
    """Runs all steps against a node of two shards. Returns 1 if one of them fails."""
    programs = find_programs(default_cache(), ["kafka"])
    if programs.kafka_jars is None:
        print("\n".join(programs.missing))
        return 3
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        directory, address, other = Path(made), free_address(), free_address()
        with running_process(directory / "node", shards=2, kafka_listen=address):
            failed += run_all(programs.kafka_jars, address, steps(directory))
        tokens, config = directory / "tokens.toml", directory / "client.properties"
        boss = add_token(tokens, "boss", admin=[""])
        add_token(tokens, "shop")
        config.write_text(CLIENT.format(token=boss))
        with running_process(directory / "secure", kafka_listen=other, tokens_file=tokens, superusers="token:boss"):
            failed += run_all(programs.kafka_jars, other, acl_steps(config))
    return 1 if failed else 0


def run_all(jars: Path, address: str, of: list[Step]) -> int:
    """Runs steps and prints a line for each. Returns how many failed."""
    failed = 0
    for step in of:
        began = time.monotonic()
        is_good, output = run(jars, address, step)
        failed += not is_good
        tool = step.tool.rpartition(".")[2]
        word, seconds = "ok" if is_good else "FAILED", time.monotonic() - began
        print(f"{word:7}{seconds:5.1f} s  {tool} {step.arguments[:80]}", flush=True)
        if not is_good:
            print("\n".join(line for line in output.splitlines() if " INFO " not in line and line[:1] != "\t")[-3000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
