"""Texts that all rows of a task share."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from engine.testing.memory_store import MemoryStore
from spark_ingest.decode.blocks import table_schema
from spark_ingest.layout import Layout
from spark_ingest.plan import Recipe
from spark_ingest.protocol.task import run_task
from tests.spark_ingest.jobs import table_rows
from tests.spark_ingest.protocol.test_task import log_of, order_for
from tests.spark_ingest.tiered import json_rows, row


def test_texts_of_all_rows_are_coded_and_their_files_have_the_same_rows() -> None:
    """Plans of older generations have no dictionaries, because the bytes of Arrow decide where files of a size end."""
    log = log_of(*json_rows(60), row(None))
    coded, plain = MemoryStore(), MemoryStore()
    order = order_for(log, Recipe(layout=Layout(file_bytes=1 << 20)))
    for output, is_coded in ((coded, True), (plain, False)):
        one = msgspec.structs.replace(order, codes_constants=is_coded, arrow=pa.__version__)
        kinds = {
            pa.types.is_dictionary(kind.type) for kind in table_schema(one) if kind.name in ("_topic", "_schema_id")
        }
        assert kinds == {is_coded}
        run_task(one, log.store, output)
    assert table_rows(coded) == table_rows(plain)
