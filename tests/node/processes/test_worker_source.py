"""The shipper's view of a partition of a shard process."""

import asyncio

from engine.directory.topics import TopicRecord
from gateway.links.link import handler
from gateway.links.link_client import LinkClient, listen
from node.process_calls import SealedLog
from node.processes.worker_process import _Source


async def test_a_shard_that_starts_later_is_waited_for_and_no_failure(tmp_path):
    """Before, the status of the store named a shard that restarts as the last error of a node that had just begun."""

    async def sealed_log(_: SealedLog, __: bytes) -> tuple[object, bytes]:
        return ((1, 2, 9, 8, 7), [], 0, (0, None, None, None), 3, []), b""

    path = str(tmp_path / "shard")
    owner = LinkClient(path)
    asked = asyncio.create_task(_Source(owner, TopicRecord("t", "id", 1, 1, {}, 0), 0).local_log(0))
    await asyncio.sleep(0.05)
    assert not asked.done()
    server = await listen(path, {"sealed_log": handler(SealedLog, sealed_log)})
    assert (await asyncio.wait_for(asked, 30)).log_end == 9
    owner.close()
    server.close()
