"""One daemon's side, event by event."""

from __future__ import annotations

import pytest

from leased.across.across import Across
from leased.across.actions import (
    Action,
    EndWanted,
    Event,
    Free,
    Held,
    Hold,
    Joined,
    Keep,
    Left,
    Line,
    Ready,
    Received,
    Run,
    Send,
    Stop,
    Stopped,
    Tick,
    Wants,
)
from leased.across.bounds import Bounds
from leased.across.coordinator import MOST_PATIENT, MOST_VAIN
from leased.across.messages import LAST_EPOCH, LAST_STAMP, Message, Order, Phase, Report, State
from leased.peers import messages

NODES = ("a", "b")
B = Bounds()


def told(daemon: Across, message: Message, now: int = 1) -> list[Action]:
    return daemon.handle(Received("a" if daemon.node == "b" else "b", message), now)


def joined(node: str) -> Across:
    """Its daemon, when a step of the job has begun there."""
    made = Across(node, B)
    made.handle(Joined("7", NODES, 1), 1)
    return made


def test_a_member_goes_through_a_whole_turn() -> None:
    b = joined("b")
    assert Line("7") in told(b, Order("7", 1, 2, Phase.REST, stamp=4))
    ready = b.handle(Ready("7", True), 1)
    assert ready == [Send("a", Report("7", 1, 2, State.REST, ready=True, latest=4))]
    assert Hold("7") in told(b, Order("7", 2, 1, Phase.HOLD, stamp=4), 5)
    held = b.handle(Held("7"), 6)
    assert held[0] == Keep("7", NODES, 1)
    assert held[1] == Send("a", Report("7", 2, 1, State.HELD, vote=6, latest=4))
    assert Run("7") in told(b, Order("7", 2, 1, Phase.RUN, vote=6, stamp=4), 7)
    ended = b.handle(EndWanted("7"), 8)
    assert isinstance(ended[0], Send)
    assert isinstance(ended[0].message, Report)
    assert ended[0].message.ends
    assert b.handle(EndWanted("7"), 8) == []  # once for each that waits, and it has been said
    assert Stop("7") in told(b, Order("7", 2, 2, Phase.STOP), 9)
    assert not any(isinstance(done, Free) for done in b.handle(Stopped("7"), 10))
    assert Free("7", lined=False) in told(b, Order("7", 2, 3, Phase.REST), 11)


def test_a_member_whose_turn_passes_before_it_has_its_gpus_lets_go_at_once() -> None:
    """As one of its processes has been stopped, so that the job's other nodes wait for nothing."""
    b = joined("b")
    told(b, Order("7", 1, 2, Phase.REST, stamp=4))
    b.handle(Ready("7", True), 1)
    told(b, Order("7", 2, 1, Phase.HOLD, stamp=4), 5)
    gone = b.handle(Ready("7", False), 6)
    assert gone == [Free("7", lined=True), Send("a", Report("7", 2, 1, State.REST, latest=4))]
    assert b.handle(Held("7"), 7) == []  # said before it went back
    again = b.handle(Ready("7", True), 8)
    assert again == [Hold("7")]


def test_a_member_stops_by_itself_and_keeps_its_gpus_until_all_others_have() -> None:
    b = joined("b")
    told(b, Order("7", 1, 2, Phase.REST, stamp=4))
    b.handle(Ready("7", True), 1)
    told(b, Order("7", 2, 1, Phase.HOLD, stamp=4), 5)
    b.handle(Held("7"), 6)
    told(b, Order("7", 2, 1, Phase.RUN, vote=6, stamp=4), 7)
    assert b.next_deadline() == 6 + B.run_ns
    assert Stop("7") in b.handle(Tick(), 6 + B.run_ns)
    b.handle(Stopped("7"), 7 + B.run_ns)
    early, late = (b.handle(Tick(), 6 + B.hold_ns + by) for by in (-1, 0))
    assert Free("7", lined=False) not in early
    assert Free("7", lined=False) in late


def test_a_round_whose_last_vote_comes_too_late_lets_nobody_run() -> None:
    a = joined("a")
    a.handle(Wants("7", True), 1)
    a.handle(Ready("7", True), 1)
    done = told(a, Report("7", 1, 2, State.REST, ready=True))
    assert Send("b", Order("7", 2, 1, Phase.HOLD, stamp=1)) in done
    a.handle(Held("7"), 1)
    late = told(a, Report("7", 2, 1, State.HELD, vote=9), 2 + B.round_ns)
    assert Run("7") not in late
    assert Send("b", Order("7", 2, 2, Phase.HOLD, stamp=1)) in late
    again = told(a, Report("7", 2, 2, State.HELD, vote=10), 3 + B.round_ns)
    assert Run("7") in again


ENDED: dict[type, list[Action]] = {
    Ready: [],
    Held: [Free("7", lined=True)],
    Run: [Stop("7"), Free("7", lined=False)],
}
FOLLOWS: dict[type, Event] = {Line: Ready("7", True), Hold: Held("7"), Stop: Stopped("7")}


def carried(a: Across, b: Across, actions: list[Action], now: int, until: type = Run) -> None:
    """What the first daemon wants is done, and what follows from it on both, until that has
    happened on the second one."""
    todo = [(a, action) for action in actions]
    while todo:
        daemon, action = todo.pop(0)
        if isinstance(action, Send):
            other = a if daemon is b else b
            todo += [(other, done) for done in told(other, action.message, now)]
        event = FOLLOWS.get(type(action))
        if event is not None:
            todo += [(daemon, done) for done in daemon.handle(event, now)]
        if daemon is b and until in (type(action), type(event)):
            return


def running(until: type = Run, step: bool = True) -> tuple[Across, Across]:
    """Both daemons, when that has happened on the second node. step: there is one there."""
    a, b = joined("a"), joined("b") if step else Across("b", B)
    carried(a, b, a.handle(Wants("7", True), 1), 1, until)
    return a, b


def test_an_epoch_that_was_forgotten_is_not_begun_again() -> None:
    a = joined("a")
    stops = told(a, Report("7", 9, 3, State.RUNNING, vote=5))
    assert Send("b", Order("7", 10, 2, Phase.STOP)) in stops
    told(a, Report("7", 10, 2, State.STOPPED))
    assert a.coordinators["7"].phase == Phase.REST


def test_a_member_says_what_it_has_followed_where_that_was_forgotten() -> None:
    """Also if nothing of it waits: else the job would wait for its answer for ever. So it is where
    a node has lost its disk and its clock is late."""
    b = joined("b")
    told(b, Order("7", 9, 2, Phase.REST, stamp=4))
    b.handle(Ready("7", True), 1)
    followed = Report("7", 9, 2, State.REST, ready=True, latest=4)
    assert told(b, Order("7", 1, 2, Phase.REST, stamp=4)) == [Send("a", followed)]


def gathers() -> Across:
    """The daemon of the first node, when all is ready there and the other one is to hold too."""
    a = joined("a")
    a.handle(Wants("7", True), 1)
    a.handle(Ready("7", True), 1)
    told(a, Report("7", 1, 2, State.REST, ready=True))
    a.handle(Held("7"), 1)
    return a


def answers(a: Across, state: State, now: int) -> list[Action]:
    """Of the other node, to the last order."""
    order = a.coordinators["7"].order("b")
    return told(a, Report("7", order.epoch, order.round, state, ready=True), now)


def test_a_job_that_cannot_have_all_its_gpus_leaves_them_to_others_for_a_while() -> None:
    a = gathers()
    for now in range(1, 1 + B.gather_ns, B.round_ns):
        assert not any(isinstance(done, Free) for done in a.handle(Tick(), now))
        answers(a, State.HOLDING, now)
    given_up = a.handle(Tick(), 1 + B.gather_ns)
    assert Free("7", lined=True) in given_up
    assert not any(isinstance(d, Hold) for d in answers(a, State.REST, 2 * B.gather_ns))
    again = a.handle(Tick(), 1 + 2 * B.gather_ns)
    assert Send("b", a.coordinators["7"].order("b")) in again
    assert Hold("7") in answers(a, State.REST, 2 + 2 * B.gather_ns)


def test_nobody_waits_for_gpus_of_a_job_of_which_a_node_says_nothing() -> None:
    """A second is enough for a daemon that is there, and as long as it was tried others have them:
    also if this daemon itself has stood still meanwhile."""
    for late in (1, B.gather_ns):
        a, now = gathers(), late + B.round_ns
        assert Free("7", lined=True) in a.handle(Tick(), now)
        assert a.missing("7") == []
        answers(a, State.REST, now)
        a.handle(Tick(), now + B.round_ns)
        assert Hold("7") in answers(a, State.REST, now + B.round_ns)


def test_what_is_not_of_the_job_s_daemons_is_ignored() -> None:
    b = joined("b")
    order = Order("7", 1, 1, Phase.HOLD, stamp=1)
    assert b.handle(Received("c", order), 1) == []
    assert b.handle(Received("c", Report("7", 9, 9, State.RUNNING)), 1) == []
    assert b.members["7"].epoch == 0


def test_a_job_that_runs_again_on_other_nodes_is_followed_where_it_has_no_step_yet() -> None:
    """Its first node has died, so nobody says that it is over there; but what was promised is."""
    b = Across("b", B)
    told(b, Order("7", 1, 2, Phase.REST, stamp=4))
    told(b, Order("7", 2, 1, Phase.HOLD, stamp=4), 5)
    again = Order("7", 1, 2, Phase.REST, stamp=9)
    b.handle(Received("c", again), 5 + B.hold_ns - 1)
    assert b.members["7"].nodes[0] == "a"
    b.handle(Tick(), 5 + B.hold_ns)
    followed = b.handle(Received("c", again), 5 + B.hold_ns)
    assert followed == [Send("c", Report("7", 1, 2, State.REST, ready=True, latest=9))]


def test_a_node_that_has_nothing_of_a_job_says_so() -> None:
    b = Across("b", B)
    assert told(b, Order("7", 3, 2, Phase.STOP)) == [Send("a", Report("7", 3, 2, State.REST))]
    b.handle(Joined("7", NODES, 1), 1)
    b.handle(Left("7"), 1)
    assert b.members == {}


@pytest.mark.parametrize("until", [Ready, Held, Run])
def test_a_job_that_ends_on_its_first_node_leaves_the_gpus_of_its_others_at_once(
    until: type,
) -> None:
    """Without the time for which they are promised, wherever in its turn it ends."""
    a, b = running(until)
    (told_b,) = [done for done in a.handle(Left("7"), 9) if isinstance(done, Send)]
    assert a.coordinators == {}
    done = told(b, told_b.message, 9)
    done += b.handle(Stopped("7"), 9)
    assert [each for each in done if isinstance(each, (Stop, Free))] == ENDED[until]
    assert b.members["7"].state == State.REST
    assert b.members["7"].stamp == 0


@pytest.mark.parametrize("step", [True, False], ids=["a step on both nodes", "on the first one"])
def test_a_job_that_is_requeued_on_its_first_node_runs_with_what_its_others_remember(
    step: bool,
) -> None:
    """Also where they have not heard that it was over, and do not wait for anything: what they are
    told then is later than all that they have followed. Nor does what is still under way of the
    former run pass for orders of this one."""
    a, b = running(Run, step)
    former = a.coordinators["7"].epoch
    a.handle(Left("7"), 9)
    b.handle(Tick(), 9 + B.run_ns)
    b.handle(Stopped("7"), 9 + B.run_ns)
    b.handle(Tick(), 9 + B.hold_ns)
    a.handle(Joined("7", NODES, 1), 9 + B.hold_ns)
    assert a.coordinators["7"].epoch > former
    carried(a, b, a.handle(Wants("7", True), 9 + B.hold_ns), 9 + B.hold_ns)
    assert {daemon.members["7"].state for daemon in (a, b)} == {State.RUNNING}


def test_the_nodes_that_a_job_waits_for_are_known() -> None:
    a = joined("a")
    assert a.missing("7") == []
    a.handle(Wants("7", True), 1)
    assert a.missing("7") == []  # it has had no time to answer
    a.handle(Tick(), 1 + B.resend_ns)
    assert a.missing("7") == ["b"]


def test_who_waits_for_its_turn_is_asked_less_and_less_often() -> None:
    """As long as nothing changes, and as often as ever once the GPUs are to be held."""
    a, asked = Across("a", B), []
    a.handle(Joined("7", NODES, 1), 1)
    a.handle(Wants("7", True), 1)
    while (due := a.next_deadline()) is not None and due <= 30 * B.resend_ns:
        orders = [each for each in a.handle(Tick(), due) if isinstance(each, Send)]
        assert len(orders) == 1
        asked.append((due - 1) // B.resend_ns)
    assert asked == [1, 3, 7, 15, 23]


def test_a_broken_daemon_that_says_the_last_number_stops_no_other_nodes_jobs() -> None:
    """All hear of the highest stamp, so what follows it has to be one that can be said."""
    a = joined("a")
    last = messages.of_bytes(messages.to_bytes(Report("8", 1, 1, State.REST, latest=LAST_STAMP)))
    told(a, last)
    asked = [done for done in a.handle(Wants("7", True), 2) if isinstance(done, Send)]
    assert asked
    for done in asked:
        assert messages.of_bytes(messages.to_bytes(done.message)) == done.message
    beyond = Report("8", 1, 1, State.REST, latest=LAST_STAMP + 1)
    with pytest.raises(ValueError, match="stamp"):
        messages.of_bytes(messages.to_bytes(beyond))


def test_a_broken_daemon_that_says_the_last_epoch_counts_as_one_that_has_not_answered() -> None:
    """What the others are told after it can be said, or their connection would end each time."""
    a = joined("a")
    a.handle(Wants("7", True), 1)
    last = Report("7", (1 << 63) - 1, 1, State.RUNNING, vote=5)
    for epoch in (LAST_EPOCH, (1 << 63) - 1):
        told(a, messages.of_bytes(messages.to_bytes(last._replace(epoch=epoch))))
    asked = [done for done in a.handle(Tick(), 1 + B.resend_ns) if isinstance(done, Send)]
    assert asked
    for done in asked:
        assert messages.of_bytes(messages.to_bytes(done.message)) == done.message
    assert a.missing("7") == ["b"]


def test_what_another_daemon_has_said_of_a_job_before_its_first_step_here_does_not_count() -> None:
    """Its own first node's orders are followed from the first one on."""
    b = Across("b", B)
    for phase in (Phase.REST, Phase.HOLD):
        b.handle(Received("c", Order("7", LAST_EPOCH, 9, phase, stamp=4)), 1)
    b.handle(Joined("7", NODES, 1), 2)
    assert Line("7") in told(b, Order("7", 1, 2, Phase.REST, stamp=4), 2)


def test_a_job_whose_turn_is_over_stops_though_its_coordinator_lets_it_run_on() -> None:
    _, b = running()
    b.handle(EndWanted("7"), 2)
    member, done, now = b.members["7"], [], 2
    for _ in range(B.hold_ns // B.round_ns):
        now += B.round_ns
        on = Order("7", member.epoch, member.round + 1, Phase.RUN, member.vote, 4)
        done += b.handle(Tick(), now) + told(b, on, now) + b.handle(Stopped("7"), now)
    assert [each for each in done if isinstance(each, (Stop, Free))] == ENDED[Run]


def test_a_job_that_has_run_rests_before_it_holds_again() -> None:
    """Else each stop and start by its coordinator would be another whole turn."""
    _, b = running()
    stop = Order("7", b.members["7"].epoch, 9, Phase.STOP, stamp=4)
    told(b, stop, 2)
    b.handle(Stopped("7"), 2)
    told(b, stop._replace(round=10, phase=Phase.HOLD), 2)
    assert b.members["7"].state == State.STOPPED


def test_a_member_that_is_ready_and_never_holds_takes_others_gpus_from_them_less_often() -> None:
    """Its daemon is broken, or a process there is stopped and goes on all the time."""
    a, now = gathers(), 1
    holds: list[int] = []
    while now < B.gather_ns and len(holds) <= 2 * MOST_VAIN:
        order = a.coordinators["7"].order("b")
        state = Report("7", order.epoch, order.round, State.REST, ready=order.phase == Phase.REST)
        done = told(a, state, now)
        holds += [now] * done.count(Hold("7"))
        if not any(isinstance(each, Send) for each in done):
            now = a.next_deadline() or B.gather_ns
            a.handle(Tick(), now)
    assert holds.count(1) == MOST_VAIN
    apart = [later - before for before, later in zip(holds[MOST_VAIN:], holds[MOST_VAIN + 1 :])]
    assert apart
    assert min(apart) >= B.resend_ns << MOST_PATIENT
