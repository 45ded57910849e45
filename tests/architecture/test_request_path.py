"""A request runs through a limited number of files. Lower a limit after an improvement; never raise one.

The limits are those of the compiled codec: its plain Python twin takes the general path of every form.

`make request-path` lists the files of each request.
"""

from tests.architecture.request_path import Call, Recorder, RequestPath, paths
from tests.codecs import needs_compiled

LIMITS = {  # files, changes of file
    "produce with acks=1": (26, 66),
    "produce with acks=all": (28, 71),
    "fetch": (22, 48),
    "long poll and the produce that wakes it": (34, 136),
    "poll of a group and the produce that wakes it": (66, 264),
}


@needs_compiled
async def test_requests_run_through_no_more_files_than_allowed(tmp_path):
    found = await paths(tmp_path)
    assert found.keys() == LIMITS.keys()
    for name, (files_max, changes_max) in LIMITS.items():
        assert 10 < len(found[name].files) <= files_max, (name, found[name].files)
        assert 10 < found[name].changes <= changes_max, (name, found[name].changes)


def test_each_change_of_file_is_counted():
    recorder = Recorder()
    recorder.calls = [Call(file, None) for file in ("a.py", "a.py", "b.py", "a.py")]
    assert recorder.path() == RequestPath(["a.py", "b.py"], 2)
