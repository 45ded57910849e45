"""The nodes and the store of the transcripts, driven by one command at a time; the real cores decide.

Nothing happens without a command: no fetch, no fsync, no message of the store. So a scenario shows exactly the effect
of each step. Logs are lists; replication.cores decides for the nodes. Only `wait` advances time.
"""

from collections.abc import Callable
from math import inf

from engine.log.epochs import EpochStart, assigned, truncated_from_end
from replication.cores import follower, reassignment
from replication.cores.election import reconciled, with_preferred_leader
from replication.cores.fetch import Diverging, FetchError, OutOfRange, Send
from replication.cores.follower import FollowerPosition
from replication.cores.leader import AdvanceWatermark, Leader, LeaderEffect, Propose
from replication.cores.partition_state import (
    Member,
    PartitionState,
    Registration,
    TopicRules,
    VersionedState,
    initial_state,
)
from replication.cores.progress import AckVerdict
from replication.cores.role import Follow, Lead, Role, Wait, role_of
from replication.cores.session import Session, SessionEvent

PARTITION = "t-0"
SESSION_S = 6.0


class StageNode:
    """A process and its disk."""

    def __init__(self, number: int, broker_epoch: int) -> None:
        self.number = number
        self.member = Member(number, broker_epoch)
        self.log: list[tuple[int, str]] = []
        self.durable_end = 0
        self.epochs: list[EpochStart] = []
        self.high_watermark = 0
        self.is_up = True
        self.role: Role = Wait(0)
        self.leader: Leader | None = None
        self.known: VersionedState | None = None
        self.waiting: list[tuple[int, str]] = []
        self.survives_from = broker_epoch
        self.session = Session(SESSION_S, -inf)

    def position(self) -> FollowerPosition:
        epoch = self.role.leader_epoch if isinstance(self.role, Follow) else -1
        return FollowerPosition(epoch, 0, 0, len(self.log), self.durable_end, self.high_watermark, self.epochs)


class Stage:
    """Commands are methods named `do_...`; each reports its effect with `tell`."""

    def __init__(self) -> None:
        self.nodes: dict[int, StageNode] = {}
        self.rules = TopicRules()
        self.registered: dict[int, Registration] = {}
        self.now = 100.0
        self.output: list[str] = []
        self.proposals: list[tuple[int, Propose]] = []
        self.broker_epochs = 0
        self.replicas = 0
        self.store: VersionedState | None = None

    def write(self, text: str) -> None:
        self.output.append(text)

    def run(self, line: str) -> None:
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        command: Callable[..., None] = getattr(self, f"do_{name.replace('-', '_')}")
        command(*[word for word in words if "=" not in word], **options)

    # Setup.

    def do_nodes(self, *numbers: str, min_insync: str = "2", durability: str = "os", unclean: str = "no") -> None:
        """The first node leads and all are in sync; a node learns this only by `learn`."""
        self.rules = TopicRules(int(min_insync), unclean == "yes", durability == "group")
        for number in map(int, numbers):
            self._register(StageNode(number, 0))
        self.store = VersionedState(initial_state(tuple(map(int, numbers)), self.registered), 0)
        self.do_learn(*numbers)

    def do_join(self, number: str) -> None:
        """Add a node without replicas."""
        self._register(StageNode(int(number), 0))

    # Records.

    def do_produce(self, number: str, value: str, acks: str = "all") -> None:
        node = self.nodes[int(number)]
        if node.leader is None:
            self.write(f"refused: {number} does not lead")
        elif acks == "all" and not node.leader.has_enough_replicas:
            self.write(f"refused: not enough replicas, nothing was appended ({value})")
        else:
            node.log.append((node.leader.leader_epoch, value))
            if acks == "all":
                node.waiting.append((len(node.log), value))
            else:
                self.write(f"acknowledged: {value}")
            self._do(node, node.leader.on_written(len(node.log), self.now))

    def do_sync(self, *numbers: str) -> None:
        for node in self._named(numbers):
            node.durable_end = len(node.log)
            if node.leader is not None:
                self._do(node, node.leader.on_synced(node.durable_end, self.now))

    def do_fetch(self, number: str) -> None:
        """The follower fetches, is answered, and does what its core decides."""
        node = self.nodes[int(number)]
        assert isinstance(node.role, Follow), f"{number} follows no leader"
        leading = self.nodes[node.role.leader]
        fetch = follower.next_fetch(node.number, node.member.broker_epoch, node.position())
        if leading.leader is None or not leading.is_up:
            self.write(f"{number} is not answered by {leading.number}")
            return
        answer, effects = leading.leader.on_fetch(fetch, self.now)
        match answer:
            case Diverging(ends):
                self.write(f"{leading.number} answers: epoch {ends.epoch} ends at {ends.end_offset} here")
            case FetchError():
                self.write(f"{leading.number} answers: {answer.value}")
            case OutOfRange(_, log_end, log_start):
                self.write(f"{leading.number} answers: the log is {log_start}..{log_end}")
            case Send():
                pass
        self._do(leading, effects)
        self._follow(node, leading, follower.on_answer(node.position(), fetch, answer))

    # The store and the controller.

    def do_learn(self, *numbers: str) -> None:
        """Receive the store's state and the registrations."""
        for node in self._named(numbers):
            self._learn(node)

    def do_controller(self) -> None:
        self._write(reconciled(PARTITION, self.store.state, self.rules, self.registered))

    def do_preferred(self) -> None:
        self._write(with_preferred_leader(PARTITION, self.store.state, self.rules, self.registered))

    def do_reassign(self, *target: str) -> None:
        self._write(reassignment.with_reassignment(self.store.state, tuple(map(int, target)), self.registered.keys()))

    def do_store(self) -> None:
        """Deliver the leaders' proposals, in order."""
        proposals, self.proposals = self.proposals, []
        for number, proposal in proposals:
            if proposal.partition_epoch != self.store.partition_epoch:
                self.write(f"store refuses what {number} proposed: the state has changed since")
            else:
                self._write(proposal.state)

    # Failures.

    def do_expire(self, number: str) -> None:
        """Expire the session; the process does not know yet."""
        self.registered.pop(int(number), None)

    def do_crash(self, number: str) -> None:
        node = self.nodes[int(number)]
        self.do_expire(number)
        node.is_up, node.leader, node.role, node.known = False, None, Wait(0), None
        node.waiting.clear()

    def do_lose_power(self, number: str) -> None:
        node = self.nodes[int(number)]
        self.do_crash(number)
        del node.log[node.durable_end :]
        node.epochs = truncated_from_end(node.epochs, len(node.log))
        node.survives_from = 0
        self.write(f"{number} is left with log_end={len(node.log)}")

    def do_start(self, number: str) -> None:
        node = self.nodes[int(number)]
        node.is_up, node.high_watermark = True, 0
        self._register(node)

    def do_wait(self, seconds: str) -> None:
        """Advance time: every leader checks its followers' lag, and live sessions send heartbeats."""
        self.now += float(seconds)
        for number in self.registered:
            self.nodes[number].session.on(SessionEvent.ANSWERED, self.now)
        for node in self.nodes.values():
            if node.leader is not None:
                self._do(node, node.leader.on_tick(self.now))

    def do_status(self) -> None:
        for node in self.nodes.values():
            if not node.is_up:
                self.write(f"{node.number} is down, log={_values(node)}")
                continue
            role = "leads" if isinstance(node.role, Lead) else "follows" if isinstance(node.role, Follow) else "waits"
            self.write(f"{node.number} {role}, log={_values(node)} high_watermark={node.high_watermark}")
            for end, value in node.waiting:
                self.write(f"  waiting: {value} for {end}")

    def do_latest(self, number: str) -> None:
        node = self.nodes[int(number)]
        found = node.leader.latest_offset if node.leader is not None else None
        if not node.session.has_contact(self.now):
            self.write(f"refused: {number} has no contact with the store, try again")
        else:
            self.write("the end is not known yet" if found is None else f"the end is {found}")

    def do_read(self, number: str, offset: str) -> None:
        """Read as a consumer. Before a permanent error the leader asks the store whether it still leads."""
        node, at = self.nodes[int(number)], int(offset)
        if node.leader is None:
            self.write(f"refused: {number} does not lead, try again")
        elif at <= node.high_watermark:
            self.write(f"{number} answers: {' '.join(value for _, value in node.log[at : node.high_watermark]) or '-'}")
        elif not node.session.has_contact(self.now):
            self.write(f"refused: {number} has no contact with the store, try again")
        elif self.store is None or role_of(node.member, self.store.state) != Lead(node.leader.leader_epoch):
            self.write(f"refused: the store does not confirm that {number} leads, try again")
        else:
            self.write(f"refused permanently: {at} is above {node.high_watermark}")

    # Helpers.

    def _named(self, numbers: tuple[str, ...]) -> list[StageNode]:
        if numbers == ("all",):
            return [node for node in self.nodes.values() if node.is_up]
        return [self.nodes[int(number)] for number in numbers]

    def _register(self, node: StageNode) -> None:
        self.broker_epochs += 1
        node.member = Member(node.number, self.broker_epochs)
        node.survives_from = node.survives_from or self.broker_epochs
        self.nodes[node.number] = node
        node.session = Session(SESSION_S, self.now)
        self.registered[node.number] = Registration(self.broker_epochs, node.survives_from)

    def _write(self, state: PartitionState) -> None:
        if state == self.store.state:
            self.write("nothing to change")
            return
        self.store = VersionedState(state, self.store.partition_epoch + 1)
        leader = state.leader.node_id if state.leader else "nobody"
        eligible = f" eligible={_ids(state.eligible)}" if state.eligible else ""
        unclean = f" unclean_elections={state.unclean_elections}" if state.unclean_elections else ""
        moving = f" replicas={list(state.replicas)}" if state.adding or state.removing else ""
        sets = f"in_sync={_ids(state.in_sync)}{eligible}{moving}{unclean}"
        self.write(f"store: leader={leader} epoch={state.leader_epoch} {sets}")

    def _learn(self, node: StageNode) -> None:
        assert self.store is not None
        found = self.store
        if node.leader is not None:
            node.leader.on_nodes(dict(self.registered))
        if node.known is not None and found.partition_epoch <= node.known.partition_epoch:
            return
        node.known = found
        if node.leader is not None and node.leader.leader_epoch == found.state.leader_epoch:
            self._do(node, node.leader.on_state(found, self.now))
            return
        node.role = role_of(node.member, found.state)
        for _, value in node.waiting:
            self.write(f"indeterminate: {value}, {node.number} does not lead any more")
        node.leader = None
        node.waiting.clear()
        if isinstance(node.role, Lead):
            node.epochs = assigned(node.epochs, node.role.leader_epoch, len(node.log))
            node.leader = Leader(
                node.member,
                found,
                self.rules,
                partition=PARTITION,
                lag_s_max=10.0,
                log_start=0,
                local_log_start=0,
                log_end=len(node.log),
                durable_end=node.durable_end,
                watermark=node.high_watermark,
                epochs=node.epochs,
                now=self.now,
            )
            node.leader.on_nodes(dict(self.registered))
            self._do(node, node.leader.on_written(len(node.log), self.now))

    def _do(self, node: StageNode, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            match effect:
                case AdvanceWatermark(position):
                    node.high_watermark = position
                case Propose(state):
                    self.write(f"{node.number} proposes in_sync={_ids(state.in_sync)}")
                    self.proposals.append((node.number, effect))
        self._acknowledge(node)

    def _acknowledge(self, node: StageNode) -> None:
        assert node.leader is not None
        for end, value in list(node.waiting):
            match node.leader.ack_verdict(end):
                case AckVerdict.COMMITTED:
                    self.write(f"acknowledged: {value}")
                case AckVerdict.TOO_FEW_AFTER_APPEND:
                    self.write(f"indeterminate: {value}, too few replicas after the append")
                case AckVerdict.WAITING:
                    continue
            node.waiting.remove((end, value))

    def _follow(self, node: StageNode, leading: StageNode, effect: follower.FollowerEffect | None) -> None:
        match effect:
            case follower.Truncate(to, is_below_watermark):
                self.write(f"{node.number} cuts {len(node.log)} to {to}{' BELOW ITS WATERMARK' * is_below_watermark}")
                del node.log[to:]
                node.durable_end = min(node.durable_end, to)
                node.epochs = truncated_from_end(node.epochs, to)
                node.high_watermark = min(node.high_watermark, to)
            case follower.Append(watermark, _):
                for epoch, value in leading.log[len(node.log) :]:
                    node.epochs = assigned(node.epochs, epoch, len(node.log))
                    node.log.append((epoch, value))
                node.high_watermark = follower.follower_watermark(node.high_watermark, watermark, len(node.log))
            case follower.RefreshState():
                self.write(f"{node.number} asks the store")
            case follower.Backoff():
                self.write(f"{node.number} asks again later")


def _ids(members: tuple[Member, ...]) -> list[int]:
    return [member.node_id for member in members]


def _values(node: StageNode) -> str:
    """a b | c: a and b are fsynced, c is not."""
    values = [f"{value}({epoch})" for epoch, value in node.log]
    durable, rest = values[: node.durable_end], values[node.durable_end :]
    return " ".join([*durable, "|", *rest]) if rest else " ".join(durable) or "-"
