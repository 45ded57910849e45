from loadtests.host import folded

TEXT = """\
run (libc.so.6);serve (cli/serve.py:49);poll (loop.c:12);epoll_pwait (libc.so.6) 50
run (libc.so.6);serve (cli/serve.py:49);produce (gateway/produce.py:10);encode (engine/batch.py:5);build (records.c:7) 6
run (libc.so.6);serve (cli/serve.py:49);produce (gateway/produce.py:12);encode (engine/batch.py:9) 2
run (libc.so.6);serve (cli/serve.py:49);Handler.call (aiohttp/web.py:1);pthread_cond_timedwait (libc.so.6);0x7f (a) 4
0x7f01 (granian/_granian.so);0x7f02 (granian/_granian.so);memcpy (libc.so.6) 2
0x7f01 (granian/_granian.so);syscall (libc.so.6) 30
"""
STACKS = folded.parse(TEXT)
WORKING = folded.working(STACKS)


def test_one_function_is_one_thing_whatever_its_line():
    assert sum(STACKS.values()) == 94
    assert len(STACKS) == 6


def test_threads_that_wait_do_not_count():
    assert sum(WORKING.values()) == 10


def test_nothing_sampled_is_no_error():
    assert folded.working(folded.parse("")) == {}
