"""The Spark data source: reads and streams of the store as DataFrames, and writes of DataFrames to topics."""
