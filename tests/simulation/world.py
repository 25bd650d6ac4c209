"""A world, run from its scenario: nodes on one network, faults, and checks at every step.

Nothing in it reads a real clock or draws a random number that does not come from the scenario, so a seed determines
every frame: `digest` is a hash of all that happened (trace.py).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from softnic.link.memory import MemoryNetwork
from softnic.packet.ethernet import mac_of
from softnic.packet.frames import Frames
from softnic.sim.clock import Stalled, VirtualClock
from softnic.sim.node import FIRST_IP
from tests.simulation.actions import Conversation
from tests.simulation.collective_workload import Job, JobRank
from tests.simulation.faults import Pair, schedule
from tests.simulation.invariants import Violation, check_idle
from tests.simulation.links import SimLink
from tests.simulation.node import FastPathMode, WorldNode
from tests.simulation.queued_node import QueuedNode
from tests.simulation.recording import WorldRecording
from tests.simulation.scenario import JobSpec, Scenario
from tests.simulation.tcp_workload import ClientApplication, ConversationRun, ConversationTable, ServerApplication
from tests.simulation.trace import Trace

END_LIMIT_S = 600.0
"""Time after the last fault within which every application has ended, whatever timeouts it waits for."""
REST_S = 300.0
"""Time after the last application within which TCP has forgotten all connections."""
LOG_LINES = 400


def _queues(scenario: Scenario, most: int | None) -> list[int | None]:
    """Return how many queues the NIC of each node has."""
    rng = random.Random(f"queues of {scenario.seed}")  # not what decides whether it is calm
    if most is None or rng.random() < 0.75:
        return [most] * len(scenario.nodes)
    return [rng.randrange(1, most + 1) for _ in scenario.nodes]


class World:
    """A world of a scenario. `report` gets every line of the log as it is written; the last ones are kept in `log`.

    `queues` is the number of queues of every NIC (queued_node.py); in one world of four, each has any number up to it.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        report: Callable[[str], None] | None = None,
        recording: WorldRecording | None = None,
        fast_path: FastPathMode | None = None,
        queues: int | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = VirtualClock()
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._report = report
        self._recording = recording
        self._fast_path: FastPathMode | None = fast_path
        self._queues = _queues(scenario, queues)
        self._trace = Trace()
        self._blocked: Counter[Pair] = Counter()
        """How many faults keep a node's frames from reaching another."""
        self._by_mac = {mac_of(FIRST_IP + index): index for index in range(len(scenario.nodes))}
        network = MemoryNetwork()
        self.nodes = [self._make_node(network, index) for index in range(len(scenario.nodes))]
        self.conversations = ConversationTable()
        self.jobs: list[Job] = []
        self._servers: list[ServerApplication] = []
        for node in self.nodes:
            node.boot_nic()
        self._start_applications()
        schedule(self, scenario.faults)

    def _make_node(self, network: MemoryNetwork, index: int) -> WorldNode:
        spec = self.scenario.nodes[index]
        port = network.port(mtu=spec.mtu, limit_bytes=spec.port_bytes)
        accepts, observer = partial(self._accepts, index), partial(self._observe, index)
        link = SimLink(port, spec.link, spec.seed, accepts, observer, spec.stale_duplicates)
        capture = None if self._recording is None else self._recording.host_observer(index, self._time)
        return WorldNode(
            *(index, spec, port, link),
            time=self._time,
            log=self.log_line,
            trace=self._trace,
            capture=capture,
            fast_path=self._fast_path,
            queues=self._queues[index],
        )

    def _start_applications(self) -> None:
        for node in self.nodes:
            server = ServerApplication(node, self.conversations, node.spec.backlog, node.spec.accept_pause_s)
            self._servers.append(server)
            node.run(server)
        for conversation in self.scenario.conversations:
            self.start_conversation(conversation)
        for job in self.scenario.jobs:
            self.start_job(job)

    def start_conversation(self, conversation: Conversation) -> None:
        """Start the client of a conversation. It waits for the conversation's time."""
        ends = [self.scenario.nodes[index] for index in (conversation.client, conversation.server)]
        plain = any(end.plain for end in ends)
        run = ConversationRun(conversation, (None, None) if plain else (ends[0].codec, ends[1].codec))
        self.conversations.all.append(run)
        client = self.nodes[conversation.client]
        client.run(ClientApplication(client, run, FIRST_IP + conversation.server, self.conversations))

    def start_job(self, spec: JobSpec) -> None:
        """Start the ranks of a job. They wait for its time."""
        job = Job(spec, lanes=min(self._queues[index] or 1 for index in spec.nodes))
        self.jobs.append(job)
        ips = [FIRST_IP + index for index in spec.nodes]
        for rank, index in enumerate(spec.nodes):
            self.nodes[index].run(JobRank(self.nodes[index], job, rank, ips))

    # What nodes and faults use

    def _time(self) -> float:
        return self.clock.now

    def log_line(self, text: str) -> None:
        """Write a line to the log."""
        line = f"{self.clock.now:12.6f} {text}"
        self.log.append(line)
        if self._report is not None:
            self._report(line)

    def block(self, pair: Pair, by: int) -> None:
        """Stop a node's frames from reaching another (1), or undo that (-1)."""
        self._blocked[pair] += by

    def _accepts(self, index: int, mac: bytes) -> bool:
        sender = self._by_mac.get(mac)
        return sender is None or not self._blocked[sender, index]

    def _observe(self, index: int, frames: Frames, outgoing: bool) -> None:
        if outgoing:
            self._trace.on_frames(self.clock.now, index, frames)
        if self._recording is not None:
            self._recording.wire(index, frames, self.clock.now, outgoing)

    @property
    def digest(self) -> str:
        """The trace so far (trace.py)."""
        return self._trace.hexdigest()

    @property
    def fast_path_segments(self) -> int:
        """Segments that the fast path of the NICs that run has processed."""
        counters = [node.host.counters for node in self.nodes if node.alive]
        return sum(each.fast_path_received + each.fast_path_sent for each in counters)

    @property
    def steered_frames(self) -> int:
        """Frames that arrived at another queue than their flow's, in the NICs that run."""
        return sum(node.node.nic.counters.rx_steered_frames for node in self.nodes if node.alive)

    @property
    def cut_collectives(self) -> int:
        """Collectives that NICs have cut over several lanes."""
        return sum(job.cut for job in self.jobs)

    @property
    def asked_of_python(self) -> int:
        """How often C has left frames, or what to send, to Python."""
        return sum(node.asked.total() for node in self.nodes)

    # Running

    def run(self) -> None:
        """Run to the end. Raises Violation."""
        try:
            self.finish(self.scenario.horizon_s + END_LIMIT_S)
            self._check_results()
            for server in self._servers:
                server.stop()
            self.rest()
            for index, node in enumerate(self.nodes):
                if node.alive:
                    self._trace.on_rest(index, node.node)
        except (Violation, Stalled) as violation:
            raise Violation(f"at {self.clock.now:.6f} s: {violation}") from None
        finally:
            for node in self.nodes:
                node.close()

    def finish(self, end: float) -> None:
        """Run until all applications have ended, which must be before `end`. Raises Violation."""
        if not self.clock.run_until(self.nodes, self._over, end):
            raise Violation(f"applications wait for ever: {'; '.join(self._waiting())}")

    def rest(self) -> None:
        """Run until only listeners are left. Raises Violation."""
        if not self.clock.run_until(self.nodes, self._idle, self.clock.now + REST_S):
            raise Violation("TCP keeps connections that nobody uses")
        for node in self.nodes:
            if node.alive:
                check_idle(node.node)
                if isinstance(node.node, QueuedNode):
                    node.node.check_frames()

    def _over(self) -> bool:
        return (
            not self.clock.events_pending
            and all(run.over for run in self.conversations.all)
            and all(all(job.ends) for job in self.jobs)
        )

    def _idle(self) -> bool:
        return not any(node.alive and node.host.tcp.keys for node in self.nodes)

    def _waiting(self) -> list[str]:
        conversations = [
            f"{run} of node{run.conversation.client} and node{run.conversation.server} ({run.ends})"
            for run in self.conversations.all
            if not run.over
        ]
        return conversations + [f"{job} ({job.ends})" for job in self.jobs if not all(job.ends)]

    def _check_results(self) -> None:
        """Check that nothing has failed in a world without faults."""
        if not self.scenario.calm:
            return
        for run in self.conversations.all:
            if not run.ends_early and not run.void and run.ends != ["complete", "complete"]:
                raise Violation(f"{run} ended {run.ends} in a world without faults")
        for job in self.jobs:
            if set(job.ends) != {"complete"}:
                raise Violation(f"{job} ended {job.ends} in a world without faults")
