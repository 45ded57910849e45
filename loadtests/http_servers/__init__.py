"""`python -m loadtests.http_servers`: what HTTP servers for Python cost a request, each with the same bare function."""
