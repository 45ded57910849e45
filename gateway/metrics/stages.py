"""Times of the stages of a produce inside a node. Numbers only; gateway/metrics/node_metrics.py renders them."""

from __future__ import annotations

from engine.runtime.histogram import Histogram


class Stages:
    """`body`: until it has arrived; `decode`: to batches; `ack`: until `acks` is met; `answer`: its encoding."""

    __slots__ = ("ack", "answer", "body", "decode")

    def __init__(self) -> None:
        self.body = Histogram()
        self.decode = Histogram()
        self.ack = Histogram()
        self.answer = Histogram()

    def histograms(self) -> tuple[Histogram, ...]:
        return self.body, self.decode, self.ack, self.answer
