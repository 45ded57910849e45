"""All tests of a file run in one worker, in their order: fixtures of modules are made once (tests/conftest.py)."""

import pytest

ran: list[pytest.Item] = []


@pytest.mark.parametrize("_", range(8))  # that many, since tests that are spread may meet in one worker by chance
def test_the_tests_of_a_file_share_a_worker(request, _):
    if not getattr(request.config.option, "loadgroup", True):
        pytest.skip("the workers of this run have no groups: --dist loadgroup")
    of_this_file = [item for item in request.session.items if item.path == request.path]
    assert ran == of_this_file[: of_this_file.index(request.node)]
    ran.append(request.node)
