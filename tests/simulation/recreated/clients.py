"""Producers and readers that know a topic by its name; each answer says the id of the topic that gave it."""

from __future__ import annotations

from typing import Any

from tests.checking.history import Polled, Produced, records_of
from tests.simulation.clients import TIMEOUT_S, Client, Producer


class NamedProducer(Producer):
    """Its partitions are numbers. A produce gets the partition that stored it with its answer."""

    def call(self, node_id: int, call: str, *args: Any) -> None:
        number, *rest, reply = args

        def on_answer(topic_id: str, *values: Any) -> None:
            self._topic_id = topic_id
            reply(*values)

        super().call(node_id, "on_named", call, int(number), None, *rest, on_answer)

    def may_repeat(self, call: str) -> bool:
        return False

    def _on_answer(self, produced: Produced, node: int, outcome: str, detail: Any) -> None:
        if outcome == "ok" and produced.done_at == float("inf"):
            produced.partition = f"{self._topic_id}-{produced.partition}"
        super()._on_answer(produced, node, outcome, detail)


class NamedReader(Client):
    """Reads one partition at any node with a position and the id that it belongs to; of another topic, from 0 on."""

    def __init__(self, *args: Any, number: int, every_s: float) -> None:
        super().__init__(*args)
        self._number, self._every_s = number, every_s
        self._topic_ids: list[str] = []  # the newest one last
        self._position = 0
        self._asked = 0

    def run(self) -> None:
        self._asked += 1
        if self.is_stopped:
            return
        node, asked, topic_id = self.any_node(), self._asked, self._topic_ids[-1] if self._topic_ids else None
        about = node, asked, self._position, self.world.now
        self.call(
            node, "on_named", "on_read", self._number, topic_id, self._position, lambda *a: self._on_answer(*about, *a)
        )
        self.world.after(TIMEOUT_S, self._give_up, asked)

    def _on_answer(
        self, node: int, asked: int, position: int, asked_at: float, topic_id: str, what: str, data: Any, *values: int
    ) -> None:
        if asked != self._asked:
            return
        if what == "topic_id_mismatch" and topic_id not in self._topic_ids:
            self.world.count("readers notified of another topic")
            self._topic_ids.append(topic_id)
            self._position = 0
        elif what == "ok":
            if not self._topic_ids:
                self._topic_ids.append(topic_id)
            log_start, watermark, _ = values
            records = tuple(record for record in records_of(data) if record[0] >= position)
            about = (self.name, f"{topic_id}-{self._number}", node, position, records, log_start, watermark)
            self.history.polled.append(Polled(*about, self.world.now, asked_at=asked_at))
            self._position = records[-1][0] + 1 if records else position
            self.world.counts["records consumed"] += len(records)
        self.world.after(self._every_s * self.world.random.random(), self.run)

    def _give_up(self, asked: int) -> None:
        if asked == self._asked:
            self.run()
