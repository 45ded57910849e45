"""Where the time of a produce goes inside a node. Numbers only; gateway/metrics/node_metrics.py shows them."""

from __future__ import annotations

from engine.runtime.histogram import Histogram


class Stages:
    """`body`: until it is here; `decode`: to batches; `ack`: until what `acks` asks for; `answer`: its document."""

    __slots__ = ("ack", "answer", "body", "decode")

    def __init__(self) -> None:
        self.body = Histogram()
        self.decode = Histogram()
        self.ack = Histogram()
        self.answer = Histogram()

    def histograms(self) -> tuple[Histogram, ...]:
        return self.body, self.decode, self.ack, self.answer
