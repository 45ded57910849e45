"""HTTP/1.1 and HTTP/2 on the wire: the protocols as pure cores, connections, and the listening server."""
