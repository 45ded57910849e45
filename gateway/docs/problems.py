"""Shows every problem code of the contract: its guarantees and what a client does about it.

Invariant: each code has its anchor, since the `type` of every problem document points there.
"""

from gateway.docs.guide import Guide
from gateway.docs.markup import Html, element, inline, prose
from gateway.docs.schema import member_rows

_INTRODUCTION = """
An error is a JSON document of the media type `application/problem+json`. Branch on `code`, which is stable; show
`detail` to people; keep `request_id` for the operator. Each code says whether the same request may succeed later, and
whether it is certain that nothing was done.
"""


def problem_section(guide: Guide) -> Html:
    fields = member_rows(guide, guide.component("schemas", "Problem"), is_request=False)
    folded = element("details", element("summary", "Fields of a problem document"), fields, class_="folded")
    return element(
        "section",
        element("header", element("h2", "Problems"), prose(_INTRODUCTION), folded, class_="group-head"),
        element("div", *[_problem(guide, code) for code in guide.problems], class_="problems"),
        id="problems",
        class_="group",
    )


def _problem(guide: Guide, code: str) -> Html:
    problem = guide.problems[code]
    return element(
        "article",
        element("p", str(problem["status"]), class_="number"),
        element(
            "div",
            element("h3", element("a", element("code", code), href=guide.links[code])),
            element("p", problem["title"] + ".", class_="title"),
            element("p", inline(problem["what_to_do"], guide.links)),
        ),
        element("p", *_flags(is_retryable=problem["retryable"], is_safe=problem["no_side_effects"]), class_="flags"),
        id=guide.links[code].removeprefix("#"),
        class_="problem",
    )


def _flags(*, is_retryable: bool, is_safe: bool) -> list[Html]:
    retry = element("span", "may succeed later", class_="flag yes") if is_retryable else None
    ambiguous = None if is_safe else element("span", "may have been done", class_="flag doubt")
    plain = element("span", "nothing was done", class_="flag") if is_safe else None
    return [flag for flag in (retry, plain, ambiguous) if flag is not None]
