"""Golden exchanges: what a running node answers to recorded requests, compared byte for byte.

It speaks to processes of nodes over sockets and imports none of the code that answers. `exchanges/` holds one readable
file per group of exchanges; exchange_files.py describes their format.
"""
