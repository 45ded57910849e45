"""The steps of a node before a power loss: fixed stories and random ones.

A story has one life or more; each starts the node, does its steps through the teller and stops the node cleanly.
"""

from collections.abc import Awaitable, Callable

from engine.testing.recorded_file import PAGE_BYTES
from tests.engine.crash.teller import ALL, HOUR_MS, LEADER, MINUTE_MS, Teller

Story = Callable[[Teller], Awaitable[None]]


async def appends(teller: Teller) -> None:
    """Groups with and without sync, small and large, in two partitions."""
    await teller.create("t", 2)
    await teller.append("t", (0, 50, ALL))
    await teller.append("t", (0, 50, LEADER))
    await teller.append("t", (0, 5000, LEADER), (1, 50, LEADER))
    await teller.append("t", (1, 50, ALL))
    await teller.append("t", (0, 9000, LEADER), (0, 50, ALL), (1, 50, LEADER))
    teller.checkpoint()
    await teller.append("t", (0, 50, LEADER))
    await teller.append("t", (0, 50, LEADER))


async def rolls(teller: Teller) -> None:
    """Segments sealed on demand and by size, synced and not, with recovery points behind them."""
    await teller.create("t", 1)
    await teller.append("t", (0, 300, LEADER))
    await teller.roll("t")
    await teller.append("t", (0, 300, ALL), (0, 6000, LEADER))
    teller.checkpoint()
    await teller.append("t", *[(0, 15_000, LEADER)] * 6)
    await teller.append("t", (0, 50, LEADER))
    await teller.append("t", (0, 50, ALL))
    await teller.roll("t")
    teller.checkpoint()
    await teller.append("t", (0, 50, LEADER))


async def expiry(teller: Teller) -> None:
    """Segments deleted locally once they are in the store, then deleted everywhere."""
    await teller.create("t", 1, local_retention_bytes=0, retention_ms=HOUR_MS)
    for _ in range(4):
        await teller.append("t", (0, 300, ALL))
        await teller.roll("t")
    await teller.expire("t", 0, tiered_end=teller.ledgers["t", 0].promised_end)
    await teller.append("t", (0, 50, ALL))
    for _ in range(3):
        await teller.roll("t")
        await teller.append("t", (0, 50, ALL))
    teller.clock.pass_ms(2 * HOUR_MS)
    await teller.append("t", (0, 50, LEADER))
    await teller.expire("t", 0)
    await teller.append("t", (0, 50, ALL))


async def unsynced_expiry(teller: Teller) -> None:
    """durability=os: expired records, and the records after them, may never have been synced."""
    await teller.create("t", 1, durability="os", retention_ms=MINUTE_MS)
    await teller.append("t", *[(0, 15_000, ALL)] * 6)
    await teller.append("t", (0, 50, ALL))
    teller.clock.pass_ms(2 * MINUTE_MS)
    await teller.append("t", (0, 50, ALL))
    await teller.expire("t", 0)
    await teller.append("t", (0, 50, LEADER))
    await teller.roll("t")
    await teller.expire("t", 0)
    await teller.append("t", (0, 50, LEADER))


async def deletion(teller: Teller) -> None:
    """Records deleted below a position: within a batch, within a segment, and up to the end, synced and not."""
    await teller.create("t", 2)
    await teller.append("t", (0, 300, ALL), (0, 5000, LEADER), (1, 50, LEADER))
    await teller.roll("t")
    await teller.append("t", (0, 300, LEADER), (0, 6000, ALL), (1, 5000, ALL))
    await teller.delete_before("t", 0, 1)
    await teller.append("t", (0, 50, LEADER))
    await teller.delete_before("t", 0, teller.ledgers["t", 0].promised_end - 1)
    await teller.append("t", (0, 50, ALL), (1, 50, LEADER))
    await teller.delete_before("t", 1, 1)
    await teller.delete_before("t", 0, teller.ledgers["t", 0].promised_end)
    await teller.append("t", (0, 50, LEADER), (1, 50, ALL))


async def unsynced_deletion(teller: Teller) -> None:
    """durability=os: a deletion up to a position must not survive as a deletion up to a lower one."""
    await teller.create("t", 1, durability="os")
    await teller.append("t", *[(0, 15_000, ALL)] * 6)
    await teller.delete_before("t", 0, 2)
    await teller.append("t", (0, 50, ALL))
    await teller.delete_before("t", 0, teller.node.shard.partition("t", 0).high_watermark)
    await teller.append("t", (0, 50, ALL))


async def two_lives(teller: Teller) -> None:
    """Two lives: the second one appends to the log of the first."""
    if not teller.ledgers:
        await teller.create("t", 1)
    await teller.append("t", (0, 5000, LEADER), (0, 5000, LEADER))
    await teller.append("t", (0, 50, LEADER))
    await teller.roll("t")
    await teller.append("t", (0, 5000, LEADER))


def under_os(story: Story) -> Story:
    """The same with durability=os, where acks=all promises no more than acks=1."""

    async def with_os_durability(teller: Teller) -> None:
        teller.durability = "os"
        await story(teller)

    return with_os_durability


async def whole_pages(teller: Teller) -> None:
    """Unsynced batches exactly as long as those of an earlier life, so that stale batches follow them on disk."""
    teller.is_page_sized = True
    if "t" not in teller.node.shard.topics:
        await teller.create("t", 1)
    for _ in range(3):
        await teller.append("t", (0, 2 * PAGE_BYTES, LEADER))
    teller.node.kill()


async def more(teller: Teller) -> None:
    """Steps for a life after a power loss; the topic may not exist any more."""
    for topic in sorted({topic for topic, _ in teller.ledgers} & teller.node.shard.topics.keys()):
        await teller.append(topic, (0, 50, ALL))
        await teller.append(topic, (0, 9000, LEADER), (0, 50, LEADER))
        await teller.roll(topic)
        teller.checkpoint()
        await teller.append(topic, (0, 50, LEADER))


async def random_steps(teller: Teller) -> None:
    """A dozen steps drawn from the teller's seed."""
    draw = teller.random
    if not teller.ledgers:
        await teller.create("t", 2)
    for _ in range(12):
        match draw.choice("aaaaarrcs"):
            case "a":
                sends = [(draw.randrange(2), draw.choice((50, 50, 3000, 9000)), draw.choice((ALL, LEADER, LEADER)))]
                await teller.append("t", *sends * draw.choice((1, 1, 2, 5)))
            case "r":
                await teller.roll("t")
            case "c":
                teller.checkpoint()
            case "s":
                await teller.append("t", (0, 20_000, LEADER), (0, 30_000, LEADER), (0, 30_000, LEADER))
