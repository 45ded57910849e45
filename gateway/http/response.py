"""An answer to a request: status, headers and a body, whole or in pieces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import orjson
from msgspec import Struct, field

from gateway.wire.messages import AnswerForm, Header

REQUEST_ID_HEADER = "Penstock-Request-Id"
JSON_TYPE = ("Content-Type", "application/json")

# Headers of every answer: who sends it, and that no browser may guess another type for it.
COMMON_HEADERS = (("Server", "penstock"), ("X-Content-Type-Options", "nosniff"))

# Returns the next piece of a body, and whether it is the last one. An error cuts the answer off.
NextPiece = Callable[[], Awaitable[tuple[bytes, bool]]]


class Stream(Protocol):
    """An answer that has begun, and that its handler writes until it ends."""

    async def write(self, data: bytes) -> None:
        """Waits until the client has room for it. Raises ConnectionResetError when the client has left."""


class Response(Struct, eq=False):
    """A response. The server adds the length, the date and its name.

    The body is whole unless there is a `rest`, which is called for each further piece, as the client takes them. A
    whole body may go on in `more`, so that large pieces need not be joined. `is_streamed`: its handler has sent it.
    `problem` is the code of a problem document. `form`: the headers of frequent answers, instead of `headers`.
    A struct of msgspec, because it is made without a Python frame.
    """

    body: bytes | bytearray = b""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    form: AnswerForm | None = None
    rest: NextPiece | None = None
    more: Sequence[bytes] = ()
    is_streamed: bool = False
    problem: str | None = None

    def __repr__(self) -> str:
        return f"Response({self.status}, {self.size_bytes} bytes)"

    @property
    def size_bytes(self) -> int:
        """The size of the body, as far as it is there."""
        return len(self.body) + sum(map(len, self.more)) if self.more else len(self.body)

    def join(self) -> bytes | bytearray:
        """Returns the body as far as it is there, which is in one piece from now on."""
        if self.more:
            self.body, self.more = b"".join((self.body, *self.more)), ()
        return self.body


@lru_cache(maxsize=64)  # few differ: by the window of a key, and by leaders
def form_of(status: int, headers: tuple[Header, ...]) -> AnswerForm:
    """Returns the form of whole answers with these headers."""
    return AnswerForm(status, headers, REQUEST_ID_HEADER, COMMON_HEADERS)


def json_response(document: Mapping[str, object], status: int = 200) -> Response:
    """Returns a document as JSON."""
    return Response(orjson.dumps(document), {"Content-Type": "application/json"}, status)
