"""Prints the number of rows of Parquet files and the sum of their ids, read by DuckDB.

    python -m tests.spark_ingest.tables.duckdb_count FILE...

A program, because DuckDB 2 reports leaked references when its process ends.
"""

from __future__ import annotations

import sys

import duckdb

QUERY = "SELECT count(*), sum(id)::BIGINT FROM read_parquet(?, union_by_name = true)"

if __name__ == "__main__":
    print(*duckdb.connect().execute(QUERY, [sys.argv[1:]]).fetchall()[0])
