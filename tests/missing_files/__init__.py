"""Missing and foreign files. About 500 cases by default; `make missing-files-long` uses 10,000."""
