"""What the tests of push share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.scenarios.push.receiver import SECRET, Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver([SECRET])
    await receiver.start()
    yield receiver
    await receiver.stop()
