"""An HTTP server for tests that answers at once, except for one stall of all answers."""

import asyncio
from contextlib import asynccontextmanager


@asynccontextmanager
async def stalling_server(stall_after: int, stall_s: float):
    """Yields its address; every request after the first `stall_after` waits for the stall to end."""
    seen, over = 0, asyncio.Event()

    async def serve(reader, writer):
        nonlocal seen
        while await reader.readuntil(b"\r\n\r\n"):
            seen += 1
            if seen == stall_after:
                asyncio.get_running_loop().call_later(stall_s, over.set)
            if seen >= stall_after:
                await over.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
            await asyncio.sleep(0)
            writer.write(b"{}")

    async def until_closed(reader, writer):
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(until_closed, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
