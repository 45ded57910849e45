"""The console at /: its shell and the files of that. The browser asks the contract for all that it shows."""
