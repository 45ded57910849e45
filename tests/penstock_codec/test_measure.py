"""What `make codec-bench` measures: both codecs do the same work."""

from unittest import mock

import pytest

from tests.codecs import needs_compiled, plainly
from tests.penstock_codec import measure

pytestmark = needs_compiled


@pytest.mark.parametrize("size_bytes", [100, 1000])
def test_both_codecs_do_the_same_work(size_bytes):
    for work in measure.works(size_bytes):
        assert work.run() == plainly(work.run), work.name


def test_every_work_gets_a_row(capsys):
    with mock.patch.object(measure, "ROUNDS", 1):
        measure.main()
    assert len(capsys.readouterr().out.splitlines()) == 2 + 2 * len(list(measure.works(100)))
