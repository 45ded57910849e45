"""Values by the schemas of a registry in answers: one bound for an answer, and no work on the loop."""

from __future__ import annotations

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread
from time import monotonic

import pytest

from engine.encodings.registry import Registry
from gateway.fetch import schema_values
from gateway.fetch.request import JSON
from gateway.http.offload import Offload
from gateway.registry.registered_schemas import RegisteredSchemas
from tests.gateway.registry.registries import framed, stub_registry

pytest.importorskip("fastavro")


async def test_keys_and_values_of_an_answer_have_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_values, "SHOWN_BYTES_MAX", 3000)
    threads = []
    as_json = schema_values.as_json

    def noted(value: bytes) -> object:
        threads.append(current_thread())
        return as_json(value)

    monkeypatch.setattr(schema_values, "as_json", noted)
    fields = [{"name": "n" * 1000, "type": "int"}]
    with stub_registry() as registry, ThreadPoolExecutor(1) as pool:
        schema_id = registry.add("a", json.dumps({"type": "record", "name": "R", "fields": fields}))
        schemas = RegisteredSchemas(Registry(registry.url, monotonic), monotonic)
        data = framed(schema_id, b"\x02")
        document = {"records": [{"key": data.decode(), "value_base64": b64encode(data).decode()}]}
        bodies = [json.dumps(document).encode()] * 2
        decoded = await schema_values.decode_values(bodies, JSON, schemas, Offload(pool), with_keys=True)
        schemas.close()
    [first], [second] = (json.loads(body)["records"] for body in decoded)
    assert first["key_json"] == first["value"] == {"n" * 1000: 1}
    assert (second["key_schema_id"], second["schema_id"]) == (schema_id, schema_id)
    assert "value_base64" in second
    assert len(b"".join(decoded)) < 4500
    assert main_thread() not in threads
