"""The import contracts of pyproject.toml: each of them can fail, and `make imports` runs them on the code.

A single wrong import is planted in the graph of our imports; its contract must then be broken. This also detects a
contract with outdated names.
"""

from copy import deepcopy

import grimp
import pytest
from importlinter import Contract
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

from tests.architecture.sources import ROOT

READ = read_configuration(str(ROOT / "pyproject.toml"))
OPTIONS, CONTRACTS = READ["session_options"], {contract["name"]: contract for contract in READ["contracts_options"]}
KINDS: dict[str, type[Contract]] = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "protected": ProtectedContract,
    "acyclic_siblings": AcyclicSiblingsContract,
}


PLANTED = {
    "Layers: the node above HTTP above replication above the log": [
        ("gateway.server.routes", "node.messages"),
        ("engine.log.log", "gateway.server.routes"),
        ("engine.log.log", "replication.replica.replica"),
        ("replication.replica.replica", "gateway.http.problems"),
    ],
    "The packages of the log, from its formats up": [
        ("engine.runtime.disk", "engine.format.paths"),
        ("engine.format.paths", "engine.log.log"),
        ("engine.log.log", "engine.producers.sequences"),
        ("engine.producers.sequences", "engine.partition.partition"),
        ("engine.partition.partition", "engine.directory.topics"),
        ("engine.directory.topics", "engine.cleaning.retention"),
        ("engine.cleaning.retention", "engine.shard.shard"),
        ("engine.shard.shard", "engine.tiering.tier"),
    ],
    "The packages of tiering": [
        ("engine.tiering.store.store", "engine.tiering.manifest.manifest"),
        ("engine.tiering.manifest.manifest", "engine.tiering.shipping.plan"),
        ("engine.tiering.reading.cache", "engine.tiering.shipping.plan"),
    ],
    "The packages of replication": [
        ("replication.cores.leader", "replication.cluster.view"),
        ("replication.cluster.view", "replication.replica.replica"),
        ("replication.cluster.view", "replication.rebuild.plan"),
    ],
    "The packages of a node": [
        ("node.setup.logs", "node.cluster.member"),
        ("node.cluster.member", "node.processes.supervisor"),
        ("node.processes.server", "node.commands.serve"),
    ],
    "The packages of ingestion": [
        ("spark_ingest.source.discovery", "spark_ingest.decode.blocks"),
        ("spark_ingest.decode.blocks", "spark_ingest.output.names"),
        ("spark_ingest.output.names", "spark_ingest.protocol.task"),
        ("spark_ingest.protocol.task", "spark_ingest.execution.worker"),
        ("spark_ingest.execution.worker", "spark_ingest.spark.execute"),
        ("spark_ingest.protocol.task", "spark_ingest.tables.publish"),
        ("spark_ingest.spark.execute", "spark_ingest.commands.run"),
    ],
    "The packages of the client, from its errors up": [
        ("penstock.errors", "penstock.options"),
        ("penstock.errors", "penstock.encryption.envelope"),
        ("penstock.records", "penstock.transport.exchange"),
        ("penstock.transport.exchange", "penstock.admin.api"),
        ("penstock.admin.topics", "penstock.producer.batch"),
        ("penstock.producer.batch", "penstock.consumer.start"),
        ("penstock.consumer.start", "penstock.producer.lines"),
        ("penstock.consumer.consumer", "penstock.aio"),
        ("penstock.aio", "penstock.sync"),
        ("penstock.sync", "penstock.cli.output"),
        ("penstock.cli.output", "penstock.testing"),
    ],
    "The parts of the command": [
        ("penstock.cli.output", "penstock.cli.node"),
        ("penstock.cli.node", "penstock.cli.records.sending"),
        ("penstock.cli.records.sending", "penstock.cli.commands.produce"),
        ("penstock.cli.doctor.machine_checks", "penstock.cli.commands.doctor"),
        ("penstock.cli.commands.topic", "penstock.cli.main"),
    ],
    "Records come in as lines, and go out in a form": [
        ("penstock.cli.records.reading", "penstock.cli.records.sending"),
    ],
    "A running node has no test doubles": [("engine.shard.shard", "engine.testing.faulty_disk")],
    "No package goes round in a circle": [("engine.format.paths", "engine.format.batch")],
    "The log does not know that it is tiered": [("engine.shard.shard", "engine.tiering.tier")],
    "Replication sees of tiering the manifest only": [
        ("replication.replica.replica", "engine.tiering.shipping.shipper")
    ],
    "The log, replication, the gateway and the node know no command, client, job or load test": [
        ("gateway.produce.produce", "penstock.producer.partitioners"),
        ("node.messages", "penstock.cli.output"),
    ],
    "Only a node's own commands start it": [
        ("penstock.cli.commands.topic", "node.messages"),
        ("penstock.cli.commands.topic", "gateway.settings"),
        ("penstock.producer.lines", "gateway.server.routes"),
    ],
    "The commands of the server and of ingestion take of the command how it prints and ends": [
        ("node.commands.token", "penstock.aio"),
        ("spark_ingest.commands.status", "penstock.admin.api"),
    ],
    "The node does not know ingestion": [("node.commands.tier.audit", "spark_ingest.options")],
    "The contract stands alone": [("openapi.contract", "engine.errors")],
    "`penstock` speaks HTTP only": [
        ("penstock.producer.lines", "engine.format.batch"),
        ("penstock.transport.exchange", "openapi.contract"),
        ("penstock.cli.commands.produce", "spark_ingest.plan"),
    ],
    "Load tests speak HTTP only": [("loadtests.generators.bodies", "engine.format.batch")],
    "Ingestion imports of the engine its pure modules and the stores": [
        ("spark_ingest.plan", "engine.log.segment"),
        ("spark_ingest.plan", "engine.tiering.store.s3"),
    ],
    "Ingestion reaches no running part of the engine, not even by a detour": [
        ("engine.tiering.store.store", "engine.shard.shard"),
        ("spark_ingest.plan", "aiohttp"),
        ("spark_ingest.commands.status", "node.messages"),
        ("spark_ingest.protocol.status", "penstock.cli.output"),
    ],
    "One door to S3": [("engine.tiering.store.store", "boto3")],
    "One door to JSON Schema": [("gateway.produce.value_checks", "jsonschema_rs")],
    "One door to Iceberg": [("spark_ingest.tables.publish", "pyiceberg.catalog")],
    "One door to Delta Lake": [("spark_ingest.tables.publish", "deltalake")],
    "One door to Avro": [("spark_ingest.payload.text", "fastavro")],
    "One door to Protobuf": [("spark_ingest.payload.text", "google")],
    "Granian is only what the load tests compare with": [("node.processes.server", "granian")],
    "One door to llhttp": [("gateway.server.adapter", "httptools")],
    "HTTP on the wire does not import the gateway above it": [("gateway.wire.server", "gateway.settings")],
    "aiokafka is only what tests and load tests compare with": [("gateway.produce.produce", "aiokafka.record")],
    "The codec imports no part of the product": [("penstock_codec.__main__", "engine.format.batch")],
    "One door to the decompressors, and one to the compressors": [("gateway.http.request", "cramjam")],
    "One door to regular expressions in linear time": [("gateway.groups.poll", "re2")],
    "One door to ZooKeeper": [("node.processes.supervisor", "kazoo.client")],
    "One door to the metrics": [("engine.partition.writer", "prometheus_client")],
    "One door to PyJWT": [("gateway.access.oidc.verifier", "jwt")],
    "aiohttp sends webhooks and spans, greets nodes, fetches keys of issuers; the public port has our own requests": [
        ("gateway.http.request", "aiohttp")
    ],
    "One door to cryptography: the client encrypts values": [("gateway.http.request", "cryptography")],
    "HTTP stays in the gateway and in the client's transport": [("engine.tiering.shipping.shipper", "aiohttp")],
}
ALSO_PLANTED = {  # further imports that make the wrong import a cycle, or indirect
    "engine.format.paths": ("engine.format.batch", "engine.format.paths"),
    "engine.tiering.store.store": ("spark_ingest.plan", "engine.tiering.store.store"),
}


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Return the imports of our code, which `make imports` finds right."""
    return grimp.build_graph(*OPTIONS["root_packages"], include_external_packages=True, cache_dir=None)


def is_kept(name: str, imports: grimp.ImportGraph) -> bool:
    """Check one contract. It may change the graph."""
    contract = KINDS[CONTRACTS[name]["type"]](name, OPTIONS, CONTRACTS[name])
    return contract.check(imports, verbose=False).kept


def plant(imports: grimp.ImportGraph, importer: str, imported: str) -> None:
    """Add an import. A library is one module of the graph, whatever is imported of it."""
    assert importer in imports.modules, f"{importer} is gone: choose another place to plant"
    is_ours = imported.split(".")[0] in OPTIONS["root_packages"]
    assert not is_ours or imported in imports.modules, f"{imported} is gone: plant another import"
    target = imported if is_ours else imported.split(".")[0]
    imports.add_import(importer=importer, imported=target)


@pytest.mark.parametrize(
    ("contract", "importer", "imported"),
    [(contract, *planted) for contract, pairs in PLANTED.items() for planted in pairs],
)
def test_a_planted_import_breaks_its_contract(imports, contract, importer, imported):
    planted = deepcopy(imports)
    plant(planted, importer, imported)
    if importer in ALSO_PLANTED:
        plant(planted, *ALSO_PLANTED[importer])
    assert not is_kept(contract, planted)


def test_every_contract_has_a_planted_import():
    assert PLANTED.keys() == CONTRACTS.keys()
