"""Records between standard input or output and a node: lines in, records sent, records printed."""
