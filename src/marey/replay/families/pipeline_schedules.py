"""Pipeline schedules: the order of forward and backward passes, and of messages, on every rank.

Each follows what the framework does today: GPipe and 1F1B block on the messages they post together;
interleaved schedules post a receive as soon as its sender's turn is known, and wait for it only
before the pass that needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from marey.model.errors import InvalidInput

FORWARD, BACKWARD, WEIGHT = "F", "B", "W"


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of one micro-batch through one stage."""

    kind: str
    stage: int
    micro_batch: int


@dataclass(frozen=True)
class Send:
    """Post the result of a pass to the stage that needs it."""

    made_by: Pass


@dataclass(frozen=True)
class Receive:
    """Post the receive of a message that another stage's pass makes."""

    made_by: Pass


@dataclass(frozen=True)
class MessageWait:
    """Wait until these messages are received, and these sent."""

    received: tuple[Pass, ...] = ()
    sent: tuple[Pass, ...] = ()


Turn = Pass | Send | Receive | MessageWait


@dataclass(frozen=True)
class Shape:
    """How many ranks, stages per rank and micro-batches there are."""

    ranks: int
    virtual: int
    micro_batches: int

    @property
    def stages(self) -> int:
        """Return the number of stages in all."""
        return self.ranks * self.virtual

    def rank_of(self, stage: int) -> int:
        """Return the place among the ranks that runs a stage."""
        return stage % self.ranks


def make_schedule(name: str, shape: Shape) -> list[list[Turn]]:
    """Return every rank's turns under the named schedule."""
    if name not in SCHEDULES:
        raise InvalidInput(f"Unknown schedule '{name}'; allowed: {', '.join(SCHEDULES)}.")
    if shape.virtual > 1 and name in ("gpipe", "1f1b"):
        raise InvalidInput(f"The schedule '{name}' has one stage per rank, not {shape.virtual}.")
    return SCHEDULES[name](shape)


def _source(shape: Shape, turn: Pass) -> Pass | None:
    """Return the pass whose message this pass needs, if it comes from elsewhere."""
    if turn.kind == FORWARD:
        return Pass(FORWARD, turn.stage - 1, turn.micro_batch) if turn.stage else None
    if turn.kind == WEIGHT or turn.stage == shape.stages - 1:
        return None
    return Pass(turn.kind, turn.stage + 1, turn.micro_batch)


def _sends(shape: Shape, turn: Pass) -> bool:
    if turn.kind == FORWARD:
        return turn.stage < shape.stages - 1
    return turn.kind == BACKWARD and turn.stage > 0


def _gpipe(shape: Shape) -> list[list[Turn]]:
    """List all forward passes, then all backward passes.

    Sends are waited for at the end of each.
    """
    return [_gpipe_rank(shape, rank) for rank in range(shape.ranks)]


def _gpipe_rank(shape: Shape, rank: int) -> list[Turn]:
    turns: list[Turn] = []
    for kind in (FORWARD, BACKWARD):
        sent = []
        for n in range(shape.micro_batches):
            turn = Pass(kind, rank, n)
            source = _source(shape, turn)
            turns += [Receive(source), MessageWait((source,))] if source else []
            turns.append(turn)
            if _sends(shape, turn):
                turns.append(Send(turn))
                sent.append(turn)
        turns.append(MessageWait(sent=tuple(sent)))
    return turns


def _one_forward_one_backward(shape: Shape) -> list[list[Turn]]:
    """Warm up, then alternate; a send is posted with the next receive and both are waited for."""
    return [_1f1b_rank(shape, rank) for rank in range(shape.ranks)]


def _1f1b_rank(shape: Shape, rank: int) -> list[Turn]:
    warm_up = min(shape.micro_batches, shape.ranks - rank)
    turns: list[Turn] = []
    pending: list[Pass] = []

    def exchange(sent: list[Pass], needed: Pass | None) -> None:
        turns.extend(Send(one) for one in sent)
        if needed:
            turns.append(Receive(needed))
        turns.append(MessageWait((needed,) if needed else (), tuple(sent)))

    forward = backward = 0
    held: list[Pass] = []
    for _ in range(warm_up):
        turn = Pass(FORWARD, rank, forward)
        exchange([], _source(shape, turn))
        turns.append(turn)
        turns.append(MessageWait(sent=tuple(pending)))
        held = [turn] if _sends(shape, turn) else []
        if forward != warm_up - 1:
            turns.extend(Send(one) for one in held)
            pending, held = held, []
        forward += 1
    while True:
        turn = Pass(BACKWARD, rank, backward)
        exchange(held, _source(shape, turn))
        turns.append(turn)
        held = [turn] if _sends(shape, turn) else []
        backward += 1
        if forward == shape.micro_batches:
            break
        ahead = Pass(FORWARD, rank, forward)
        exchange(held, _source(shape, ahead))
        turns.append(ahead)
        held = [ahead] if _sends(shape, ahead) else []
        forward += 1
    turns.extend(Send(one) for one in held)
    pending = held
    while backward < shape.micro_batches:
        turn = Pass(BACKWARD, rank, backward)
        exchange([], _source(shape, turn))
        turns += [turn, MessageWait(sent=tuple(pending))]
        pending = [turn] if _sends(shape, turn) else []
        turns.extend(Send(one) for one in pending)
        backward += 1
    turns.append(MessageWait(sent=tuple(pending)))
    return turns


def _make_interleaved(shape: Shape) -> list[list[Turn]]:
    orders = [_order_interleaved(shape, rank) for rank in range(shape.ranks)]
    return _with_messages(shape, [_add_upkeep(shape, order) for order in orders])


# For so many stages ahead torch keeps parameters gathered.
STAGES_AHEAD = 3


def _add_upkeep(shape: Shape, order: list[Pass]) -> list[Pass | None]:
    """Return the passes with a turn for every gathering, freeing and summing that torch puts in.

    Without sharded parameters these do nothing, but they take a turn when torch decides who posts
    which receive before which pass (``_add_unshard_reshard``, ``_add_reduce_grad``).
    """
    upkept: list[Pass | None] = []
    gathered: set[int] = set()
    left = dict.fromkeys((turn.stage for turn in order), shape.micro_batches)
    for place, turn in enumerate(order):
        ahead = set(list(dict.fromkeys(t.stage for t in order[place:]))[:STAGES_AHEAD])
        upkept += [None] * (len(gathered - ahead) + len(ahead - gathered))
        gathered = ahead
        upkept.append(turn)
        if turn.kind == BACKWARD:
            left[turn.stage] -= 1
            upkept += [None] * (left[turn.stage] == 0)
    return [*upkept, *([None] * len(gathered))]


def _order_interleaved(shape: Shape, rank: int) -> list[Pass]:
    """Return the passes of a rank: warm-up, alternating, cool-down, depth first over its stages."""
    rounds = max(1, shape.micro_batches // shape.ranks)
    if shape.micro_batches % rounds:
        raise InvalidInput(
            f"Interleaved 1F1B needs micro-batches in {rounds} equal rounds, which "
            f"{shape.micro_batches} are not; use a multiple of {shape.ranks}."
        )
    per_round = shape.micro_batches // rounds
    total = shape.virtual * shape.micro_batches
    warm_up = min((shape.virtual - 1) * per_round + 2 * (shape.ranks - 1 - rank), total)
    next_forward = [0] * shape.virtual
    next_backward = [0] * shape.virtual
    order: list[Pass] = []

    def forward(turn: int) -> None:
        local = (turn // per_round) % shape.virtual
        order.append(Pass(FORWARD, local * shape.ranks + rank, next_forward[local]))
        next_forward[local] += 1

    def backward(turn: int) -> None:
        local = shape.virtual - 1 - ((turn - warm_up) // per_round) % shape.virtual
        order.append(Pass(BACKWARD, local * shape.ranks + rank, next_backward[local]))
        next_backward[local] += 1

    for turn in range(warm_up):
        forward(turn)
    for turn in range(warm_up, total):
        forward(turn)
        backward(turn)
    for turn in range(total, total + warm_up):
        backward(turn)
    return order


def _with_messages(shape: Shape, orders: list[list[Pass | None]]) -> list[list[Turn]]:
    """Add messages: whoever makes one posts it, and its receiver posts the receive in that turn."""
    turns: list[list[Turn]] = [[] for _ in orders]
    known: list[set[Pass]] = [set() for _ in orders]
    places = [0] * len(orders)
    sent: list[list[Pass]] = [[] for _ in orders]
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        moved = False
        for rank, order in enumerate(orders):
            if places[rank] >= len(order):
                continue
            turn = order[places[rank]]
            source = _source(shape, turn) if turn else None
            if turn and source and source not in known[rank]:
                continue
            places[rank], moved = places[rank] + 1, True
            if turn is None:
                continue
            local = source is None or shape.rank_of(source.stage) == rank
            turns[rank] += [turn] if local or source is None else [MessageWait((source,)), turn]
            known[rank].add(turn)
            if _sends(shape, turn):
                other = shape.rank_of(turn.stage + (1 if turn.kind == FORWARD else -1))
                known[other].add(turn)
                if other != rank:
                    turns[rank].append(Send(turn))
                    sent[rank].append(turn)
                    turns[other].append(Receive(turn))
        if not moved:
            raise InvalidInput("This schedule waits for itself; change micro-batches or stages.")
    for rank, own in enumerate(sent):
        turns[rank].append(MessageWait(sent=tuple(reversed(own))))
    return turns


SCHEDULES: dict[str, Callable[[Shape], list[list[Turn]]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _make_interleaved,
}


def order_by_arrival(
    shape: Shape, cost_ms: Callable[[Pass], float], message_ms: float
) -> list[list[Turn]]:
    """Return turns in which each rank runs whatever message has arrived (AxoNN).

    The first rank starts as many micro-batches as there are ranks, then one for every backward pass
    it completes; everybody posts receives ahead and takes messages in the order they arrive.
    """
    arrived: list[list[tuple[float, int, Pass]]] = [[] for _ in range(shape.ranks)]
    orders: list[list[Pass | None]] = [[] for _ in range(shape.ranks)]
    free = [0.0] * shape.ranks
    started = min(shape.ranks, shape.micro_batches)
    for n in range(started):
        arrived[0].append((0.0, n, Pass(FORWARD, 0, n)))
    while any(arrived):
        rank = min(
            (r for r in range(shape.ranks) if arrived[r]),
            key=lambda r: max(free[r], min(arrived[r])[0]),
        )
        now = max(free[rank], min(arrived[rank])[0])
        # Of what is there, backward passes go first: they free memory and feed the others.
        ready = [entry for entry in arrived[rank] if entry[0] <= now]
        chosen = min(ready, key=lambda entry: (entry[2].kind == FORWARD, entry[1]))
        arrived[rank].remove(chosen)
        turn = chosen[2]
        orders[rank].append(turn)
        free[rank] = now + cost_ms(turn)
        started += _pass_on(
            shape, turn=turn, at_ms=free[rank] + message_ms, arrived=arrived, started=started
        )
    return _with_receives_ahead(shape, orders)


def order_zero_bubble(
    shape: Shape, cost_ms: Callable[[Pass], float], message_ms: float
) -> list[list[Turn]]:
    """Return turns in which gradients of weights wait until a rank has nothing else to do (ZB-H1).

    A backward pass is split: first what the stage before waits for, later the gradients of the
    stage's own weights. No rank holds more micro-batches than under 1F1B.
    """
    orders: list[list[Pass | None]] = [[] for _ in range(shape.ranks)]
    arrived = [{Pass(FORWARD, 0, n): 0.0 for n in range(shape.micro_batches)}]
    arrived += [{} for _ in range(shape.ranks - 1)]
    later: list[list[Pass]] = [[] for _ in range(shape.ranks)]
    free, held = [0.0] * shape.ranks, [0] * shape.ranks
    for _ in range(3 * shape.ranks * shape.micro_batches):
        now, rank, turn = min(
            (
                offer
                for r in range(shape.ranks)
                for offer in _offers(arrived[r], later[r], free[r], (r, held[r] < shape.ranks - r))
            ),
            key=lambda offer: offer[:2],
        )
        orders[rank].append(turn)
        free[rank] = now + cost_ms(turn)
        if turn.kind == WEIGHT:
            later[rank].remove(turn)
            continue
        del arrived[rank][turn]
        held[rank] += 1 if turn.kind == FORWARD else -1
        if turn.kind == BACKWARD:
            later[rank].append(Pass(WEIGHT, turn.stage, turn.micro_batch))
        if turn.kind == FORWARD and turn.stage == shape.stages - 1:
            arrived[rank][Pass(BACKWARD, turn.stage, turn.micro_batch)] = free[rank]
        elif _sends(shape, turn):
            stage = turn.stage + (1 if turn.kind == FORWARD else -1)
            arrived[stage][Pass(turn.kind, stage, turn.micro_batch)] = free[rank] + message_ms
    return _with_receives_ahead(shape, orders)


def _offers(
    arrived: dict[Pass, float], later: list[Pass], free_ms: float, rank: tuple[int, bool]
) -> list[tuple[float, int, Pass]]:
    """Return a rank's next turn and its time, if any: weights only in place of idling."""
    number, has_room = rank
    fitting = [p for p in arrived if p.kind == BACKWARD or has_room]
    ready = [p for p in fitting if arrived[p] <= free_ms]
    if ready:
        first = min(ready, key=lambda p: (p.kind == FORWARD, p.micro_batch))
        return [(free_ms, number, first)]
    if later:
        return [(free_ms, number, later[0])]
    if fitting:
        first = min(fitting, key=lambda p: (arrived[p], p.kind == FORWARD, p.micro_batch))
        return [(arrived[first], number, first)]
    return []


def _pass_on(
    shape: Shape,
    *,
    turn: Pass,
    at_ms: float,
    arrived: list[list[tuple[float, int, Pass]]],
    started: int,
) -> int:
    """Deliver what a pass makes, and say how many new micro-batches it lets start."""
    n = turn.micro_batch
    if turn.kind == FORWARD and turn.stage == shape.stages - 1:
        arrived[shape.rank_of(turn.stage)].append((at_ms, n, Pass(BACKWARD, turn.stage, n)))
    elif _sends(shape, turn):
        stage = turn.stage + (1 if turn.kind == FORWARD else -1)
        arrived[shape.rank_of(stage)].append((at_ms, n, Pass(turn.kind, stage, n)))
    elif turn.kind == BACKWARD and started < shape.micro_batches:
        arrived[0].append((at_ms, started, Pass(FORWARD, 0, started)))
        return 1
    return 0


def _with_receives_ahead(shape: Shape, orders: list[list[Pass | None]]) -> list[list[Turn]]:
    turns: list[list[Turn]] = []
    for order in orders:
        passes = [turn for turn in order if turn is not None]
        sources = [source for turn in passes if (source := _source(shape, turn))]
        own: list[Turn] = [Receive(source) for source in sources]
        sent = []
        for turn in passes:
            source = _source(shape, turn)
            own += [MessageWait((source,)), turn] if source else [turn]
            if _sends(shape, turn):
                own.append(Send(turn))
                sent.append(turn)
        turns.append([*own, MessageWait(sent=tuple(sent))])
    return turns


def post_receives_ahead(turns: list[list[Turn]]) -> list[list[Turn]]:
    """Return the turns with every receive posted first, and sends waited for at the end."""
    ahead: list[list[Turn]] = []
    for own in turns:
        receives: list[Turn] = [turn for turn in own if isinstance(turn, Receive)]
        rest: list[Turn] = []
        sent: list[Pass] = []
        for turn in own:
            if isinstance(turn, MessageWait):
                sent += turn.sent
                rest += [MessageWait(turn.received)] if turn.received else []
            elif not isinstance(turn, Receive):
                rest.append(turn)
        ahead.append([*receives, *rest, MessageWait(sent=tuple(sent))])
    return ahead
