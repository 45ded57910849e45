"""The programs that run stories, one for each client: the same commands on stdin, the same answers on stdout."""
