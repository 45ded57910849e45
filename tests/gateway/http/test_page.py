"""Pages of a list: one after the other they are the list, in its order, whatever comes and goes between them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.names import TenantNames
from gateway.http.page import PageQuery, cut, page_of
from gateway.http.problems import Problem

NAMES = st.lists(st.text("ab.", min_size=1, max_size=3), unique=True)
Pager = Callable[[PageQuery], tuple[list[str], dict[str, object]]]


def pages(pager: Pager, limit: int) -> list[list[str]]:
    page, members = pager(PageQuery(limit=limit))
    pages = [page]
    while members["next"] is not None:
        page, members = pager(PageQuery(limit=limit, after=str(members["next"])))
        pages.append(page)
    return pages


@given(NAMES, st.integers(1, 4))
def test_the_pages_are_the_list_by_name(names, limit):
    made = pages(lambda query: page_of(query, names, str), limit)
    assert [name for page in made for name in page] == sorted(names)
    assert all(len(page) == limit for page in made[:-1])


@given(st.dictionaries(st.text("ab:", min_size=1, max_size=3), st.sampled_from((0.0, 0.1, 7.0))), st.integers(1, 4))
def test_the_pages_are_the_list_by_a_number_also_where_some_have_the_same(numbers, limit):
    made = pages(lambda query: cut(query, list(numbers), str, number_of=numbers.__getitem__), limit)
    assert [name for page in made for name in page] == sorted(numbers, key=lambda name: (-numbers[name], name))


def test_a_name_that_is_gone_still_begins_the_next_page():
    assert page_of(PageQuery(after="b"), ["a", "c"], str) == (["c"], {"total": 2, "next": None})


def test_a_tenant_says_its_own_names():
    stored = ["acme.b", "acme.a", "acme.ba", "acme2.b"]
    query = PageQuery(prefix="b", limit=1)
    page, members = page_of(query, stored, str, TenantNames("acme"))
    assert (page, members) == (["acme.b"], {"total": 2, "next": "acme.b"})
    query = PageQuery(prefix="b", after="b")
    assert page_of(query, stored, str, TenantNames("acme"))[0] == ["acme.ba"]


@pytest.mark.parametrize("after", ["x", "nan:x", "inf:x"])
def test_a_position_without_its_number_is_refused(after):
    with pytest.raises(Problem, match="give what `next` has"):
        cut(PageQuery(after=after), ["x"], str, number_of=len)
