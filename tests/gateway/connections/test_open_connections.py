"""Who is idle: judged by requests and by what the kernel sees, with a time that the test gives."""

from gateway.connections.open_connections import OpenConnections

SILENT_S, IDLE_S = 10, 100


def connections():
    return OpenConnections(SILENT_S, IDLE_S)


def nobody(client):
    return False


def test_a_silent_connection_is_overdue_after_its_time():
    watch = connections()
    assert watch.overdue({1: "a:1"}, 0, nobody) == set()
    assert watch.overdue({1: "a:1", 2: "a:2"}, SILENT_S - 1, nobody) == set()
    assert watch.overdue({1: "a:1", 2: "a:2"}, SILENT_S, nobody) == {1}
    assert watch.overdue({2: "a:2"}, 2 * SILENT_S, nobody) == {2}
    assert watch.overdue({}, 3 * SILENT_S, nobody) == set()
    assert repr(watch) == "OpenConnections(asking=0, silent=0)"


def test_a_request_under_way_is_never_idle_and_its_end_begins_the_time():
    watch = connections()
    watch.began("a:1")
    for now in (0, IDLE_S, 5 * IDLE_S):
        assert watch.overdue({1: "a:1"}, now, nobody) == set()
    watch.ended("a:1", 5 * IDLE_S)
    assert watch.overdue({1: "a:1"}, 6 * IDLE_S - 1, nobody) == set()
    assert watch.overdue({1: "a:1"}, 6 * IDLE_S, nobody) == {1}


def test_of_several_requests_all_must_be_answered():
    watch = connections()
    watch.began("a:1")
    watch.began("a:1")
    watch.overdue({1: "a:1"}, 0, nobody)
    watch.ended("a:1", 1)
    assert watch.overdue({1: "a:1"}, 10 * IDLE_S, nobody) == set()


def test_an_answer_on_its_way_is_not_idle():
    watch = connections()
    watch.began("a:1")
    watch.ended("a:1", 0)
    assert watch.overdue({1: "a:1"}, 1, {"a:1"}.__contains__) == set()
    assert watch.overdue({1: "a:1"}, IDLE_S, {"a:1"}.__contains__) == set()
    assert watch.overdue({1: "a:1"}, IDLE_S, nobody) == {1}


def test_an_address_that_is_used_again_is_another_connection():
    watch = connections()
    watch.began("a:1")
    watch.ended("a:1", 0)
    watch.overdue({1: "a:1"}, 1, nobody)
    assert watch.overdue({2: "a:1"}, IDLE_S + 1, nobody) == set()
    assert watch.overdue({2: "a:1"}, 2 * IDLE_S, nobody) == set()
    assert watch.overdue({2: "a:1"}, 2 * IDLE_S + 1, nobody) == {2}


def test_who_has_left_is_forgotten():
    watch = connections()
    for number in range(100):
        watch.began(f"a:{number}")
        watch.ended(f"a:{number}", 0)
    watch.began("b:1")
    watch.overdue({}, 1, nobody)
    assert repr(watch) == "OpenConnections(asking=1, silent=0)", "a request under way ends later"
    watch.ended("b:1", 2)


def test_an_address_is_known_however_it_is_written():
    watch = connections()
    for client in ("[::ffff:1.2.3.4]:5", "[fe80::1%3]:7", "[0:0::1]:9"):
        watch.began(client)
    found = {1: "1.2.3.4:5", 2: "[fe80::1]:7", 3: "[::1]:9", 4: "8.8.8.8:5"}
    watch.overdue(found, 0, nobody)
    assert watch.overdue(found, 10 * IDLE_S, nobody) == {4}
