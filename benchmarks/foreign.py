"""Tasks that the library does not ship, with a planner and a sampler of their own: nothing here imports the library.

    python benchmarks/foreign.py          # lists the tasks, and how far apart the policies of three discount factors are

Benchmarks draw decisions here and hand them to the library, so that the model that made the data shares no code with the one that
reads them. A task holds transitions P(s'|s,a), the expected features f(s,a) of a decision, their weights, and the distribution of
durations where decisions last. With w the weight of what comes next (γ, or the expected γ^τ where a decision lasts τ),

    Q(s,a) = f(s,a)'θ + w(s,a) Σ P(s'|s,a) V(s'),   π(a|s) ∝ exp(Q/λ),   V = λ log Σ exp(Q/λ) (soft), max Q (max) or Σ π Q (mean),

iterated until V changes by less than 1e-12. `naive` plans for any weights d(t) of the future (hyperbolic, a depth) as a person
does who expects to follow today's plan. Lapses, wrong beliefs and risk aversion are arguments, to break the library's assumptions
on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Task:
    """A task with names, rules, features and the weights that people have for them."""

    name: str
    states: tuple[str, ...]
    actions: tuple[str, ...]
    transitions: np.ndarray  # (A,S,S); rows of terminal states are zero
    initial: np.ndarray  # (S,)
    features: np.ndarray  # (S,A,d), expected at a decision
    feature_names: tuple[str, ...]
    weights: np.ndarray  # (d,)
    steps: int  # the longest episode
    available: np.ndarray  # bool (S,A)
    arrival: np.ndarray | None = None  # (S,d) where features are paid on arrival
    durations: np.ndarray | None = None  # (S,A,m) probabilities of the durations below
    lasting: np.ndarray | None = None  # (m,)

    @property
    def terminal(self) -> np.ndarray:
        """Places of the states without a way on."""
        return np.flatnonzero(self.transitions.sum(axis=(0, 2)) == 0)

    def reward(self, weights: np.ndarray | None = None) -> np.ndarray:
        """The expected immediate reward (S,A)."""
        return self.features @ (self.weights if weights is None else np.asarray(weights, dtype=float))

    def moves_table(self) -> pd.DataFrame:
        """The transitions as a table: state, action, next_state, probability."""
        a, s, t = np.nonzero(self.transitions)
        names = np.array(self.states, dtype=object)
        chosen = np.array(self.actions, dtype=object)[a]
        return pd.DataFrame(
            {"state": names[s], "action": chosen, "next_state": names[t], "probability": self.transitions[a, s, t]}
        )

    def features_table(self) -> pd.DataFrame:
        """The features as a table: by state where they are paid on arrival, else by state and action."""
        names = np.array(self.states, dtype=object)
        if self.arrival is not None:
            return pd.DataFrame({"state": names} | dict(zip(self.feature_names, self.arrival.T, strict=True)))
        s, a = np.nonzero(self.available & (self.transitions.sum(axis=2) > 0).T)
        return pd.DataFrame(
            {"state": names[s], "action": np.array(self.actions, dtype=object)[a]}
            | dict(zip(self.feature_names, self.features[s, a].T, strict=True))
        )

    def points_table(self) -> pd.DataFrame:
        """The reward itself as a table: state, action, reward."""
        s, a = np.nonzero(self.available & (self.transitions.sum(axis=2) > 0).T)
        chosen = np.array(self.actions, dtype=object)[a]
        return pd.DataFrame({"state": np.array(self.states, dtype=object)[s], "action": chosen, "reward": self.reward()[s, a]})


def _task(
    name: str,
    states: Sequence[str],
    actions: Sequence[str],
    transitions: np.ndarray,
    weights: dict[str, float],
    steps: int,
    initial: np.ndarray | None = None,
    features: np.ndarray | None = None,
    arrival: np.ndarray | None = None,
    available: np.ndarray | None = None,
    **more: np.ndarray,
) -> Task:
    size = len(states)
    live = transitions.sum(axis=(0, 2)) > 0
    if features is None:
        assert arrival is not None
        features = np.einsum("ast,td->sad", transitions, arrival)
    if available is None:
        available = np.ones((size, len(actions)), dtype=bool)
    start = live / live.sum() if initial is None else initial
    return Task(
        name, tuple(states), tuple(actions), transitions, start, features, tuple(weights), np.array(list(weights.values())),
        steps, available, arrival, **more,
    )  # fmt: skip


def _next_weight(task: Task, discount: float) -> tuple[np.ndarray | float, np.ndarray | float]:
    """What the immediate reward and the value after it count for: (1, γ), or their means where decisions last.

    What is paid for a decision is paid when it begins; what is paid on arrival, after one unit of time, is paid when it ends.
    """
    if task.durations is None or task.lasting is None:
        return 1.0, discount
    power = (task.durations @ np.power(discount, task.lasting - 1.0)) if discount > 0 else task.durations @ (task.lasting == 1)
    return (1.0 if task.arrival is None else power), power * discount


def policy(
    task: Task,
    discount: float,
    temperature: float,
    value: str = "soft",
    weights: np.ndarray | None = None,
    lapse: float = 0.0,
    beliefs: np.ndarray | None = None,
    utility: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """The policy (S,A) of an endless planner; `beliefs` replace the transitions, `utility` bends the immediate reward."""
    P = task.transitions if beliefs is None else beliefs
    R = task.reward(weights)
    if beliefs is not None and task.arrival is not None:
        R = np.einsum("ast,td->sad", P, task.arrival) @ (task.weights if weights is None else weights)
    if utility is not None:
        R = utility(R)
    now, later = _next_weight(task, discount)
    allowed = np.where(task.available, 0.0, -np.inf)
    dead = P.sum(axis=(0, 2)) == 0
    V = np.zeros(len(task.states))
    for _ in range(200_000):
        Q = (now * R + later * np.einsum("ast,t->sa", P, V)) / temperature + allowed
        top = Q.max(axis=1)
        if value == "max":
            new = temperature * top
        else:
            shares = np.exp(Q - top[:, None])
            if value == "soft":
                new = temperature * (top + np.log(shares.sum(axis=1)))
            else:
                shares /= shares.sum(axis=1, keepdims=True)
                new = temperature * np.sum(shares * np.where(task.available, Q, 0.0), axis=1)
        new[dead] = 0.0
        change = np.abs(new - V).max()
        V = new
        if change < 1e-12 * max(1.0, np.abs(V).max()):
            break
    Q = (now * R + later * np.einsum("ast,t->sa", P, V)) / temperature + allowed
    return _lapsing(task, np.exp(Q - Q.max(axis=1, keepdims=True)), lapse)


def _lapsing(task: Task, shares: np.ndarray, lapse: float) -> np.ndarray:
    shares = shares / shares.sum(axis=1, keepdims=True)
    return (1 - lapse) * shares + lapse * task.available / task.available.sum(axis=1, keepdims=True)


def naive(task: Task, weigh: Callable[[int], float], temperature: float, far: int = 400, lapse: float = 0.0) -> np.ndarray:
    """The policy of a planner who weighs what comes t decisions from now by `weigh(t)`, and expects to keep to the plan."""
    P, R = task.transitions, task.reward()
    allowed = np.where(task.available, 0.0, -np.inf)
    dead = P.sum(axis=(0, 2)) == 0
    W = np.zeros(len(task.states))  # what comes from decision t+1 on, in units of today
    for t in range(far, 0, -1):
        d = weigh(t)
        if d <= 0:
            continue
        Q = (d * R + np.einsum("ast,t->sa", P, W)) / (d * temperature) + allowed
        if t == 1:
            return _lapsing(task, np.exp(Q - Q.max(axis=1, keepdims=True)), lapse)
        top = Q.max(axis=1)
        W = d * temperature * (top + np.log(np.exp(Q - top[:, None]).sum(axis=1)))
        W[dead] = 0.0
    raise ValueError("d(1) must be positive")


def hyperbolic(task: Task, kappa: float, temperature: float, lapse: float = 0.0) -> np.ndarray:
    """d(t) = 1/(1 + κ(t − 1))."""
    return naive(task, lambda t: 1.0 / (1.0 + kappa * (t - 1)), temperature, lapse=lapse)


def depth(task: Task, ahead: int, temperature: float, lapse: float = 0.0) -> np.ndarray:
    """d(t) = 1 up to `ahead` decisions, then 0."""
    return naive(task, lambda t: float(t <= ahead), temperature, far=ahead, lapse=lapse)


def sample(
    task: Task,
    policies: dict[str, np.ndarray],
    episodes: int,
    rng: np.random.Generator,
    starts: Sequence[int] | None = None,
    times: bool = False,
) -> pd.DataFrame:
    """Decisions of every expert: expert, episode, step, state, action, next_state, and time where `times`.

    An episode ends in a terminal state, and otherwise after `task.steps` decisions. Times are those at which decisions are made:
    nothing says when the last move of an episode ends.
    """
    kept: list[tuple[np.ndarray, ...]] = []
    size = len(task.states)
    ends = np.zeros(size, dtype=bool)
    ends[task.terminal] = True
    cumulated = task.transitions.cumsum(axis=2)
    for who, (_, chosen) in enumerate(policies.items()):
        choices = chosen.cumsum(axis=1)
        state = rng.choice(size, p=task.initial, size=episodes) if starts is None else np.resize(np.asarray(starts), episodes)
        clock = np.zeros(episodes)
        going = np.flatnonzero(~ends[state])
        for step in range(task.steps):
            if not going.size:
                break
            s = state[going]
            a = np.minimum((choices[s] < rng.random((going.size, 1)) * choices[s][:, -1:]).sum(axis=1), choices.shape[1] - 1)
            row = cumulated[a, s]
            t = np.minimum((row < rng.random((going.size, 1)) * row[:, -1:]).sum(axis=1), size - 1)
            kept.append((np.full(going.size, who), going, np.full(going.size, step), s, a, t, clock[going].copy()))
            if task.durations is not None and task.lasting is not None:
                odds = task.durations[s, a].cumsum(axis=1)
                clock[going] += task.lasting[(odds < rng.random((going.size, 1)) * odds[:, -1:]).sum(axis=1)]
            else:
                clock[going] += 1
            state[going] = t
            going = going[~ends[t]]
    who, episode, step, s, a, t, clock = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    states, actions = np.array(task.states, dtype=object), np.array(task.actions, dtype=object)
    table = pd.DataFrame(
        {
            "expert": np.array(list(policies), dtype=object)[who],
            "episode": episode,
            "step": step,
            "state": states[s],
            "action": actions[a],
            "next_state": states[t],
        }
    )
    if times:
        table["time"] = clock
    return table.sort_values(["expert", "episode", "step"], kind="stable", ignore_index=True)


# ── the tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _binomial(n: int, p: float) -> np.ndarray:
    odds = np.ones(1)
    for _ in range(n):
        odds = np.convolve(odds, [1 - p, p])
    return odds


def fishing(rounds: int = 20) -> Task:
    """A stock of 0–10 fish; rest, a rod (1) or a net (up to 4); points are fish taken; three trials of regrowth."""
    P, taken = np.zeros((3, 11, 11)), np.zeros((11, 3, 1))
    for stock in range(11):
        for a, most in enumerate((0, 1, 4)):
            taken[stock, a, 0] = min(stock, most)
            left = stock - min(stock, most)
            for more, chance in enumerate(_binomial(3, 0.05 + 2.6 * (left / 10) * (1 - left / 10))):
                P[a, stock, min(left + more, 10)] += chance
    return _task("fishing", [str(i) for i in range(11)], ["rest", "rod", "net"], P, {"fish": 1.0}, rounds, features=taken)


def inventory(rounds: int = 30) -> Task:
    """Stock of 0–20; order 0, 4 or 8; binomial demand; features: sales, units ordered, an order placed, stock held."""
    orders, demand = (0, 4, 8), _binomial(8, 0.45)
    P, F = np.zeros((3, 21, 21)), np.zeros((21, 3, 4))
    for stock in range(21):
        for a, order in enumerate(orders):
            have = min(stock + order, 20)
            for wanted, chance in enumerate(demand):
                P[a, stock, have - min(have, wanted)] += chance
                F[stock, a, 0] += chance * min(have, wanted)
            F[stock, a, 1:] = have - stock, float(order > 0), stock
    weights = {"sold": 1.0, "ordered": -0.4, "order": -0.6, "held": -0.04}
    return _task("inventory", [f"stock {i}" for i in range(21)], ["none", "small", "large"], P, weights, rounds, features=F)


def machine(rounds: int = 30) -> Task:
    """Wear of 0–9; keep, service (wear −3) or replace (wear 0); output falls with wear, worn machines break."""
    P, F = np.zeros((3, 10, 10)), np.zeros((10, 3, 3))
    for wear in range(10):
        for a, base in enumerate((wear, max(wear - 3, 0), 0)):
            for more, chance in enumerate((0.35, 0.45, 0.2)):
                P[a, wear, min(base + more, 9)] += chance
            F[wear, a] = 1 - (base / 9) ** 2, float(a == 1), float(a == 2)
    weights = {"output": 2.0, "service": -0.8, "replacement": -2.0}
    return _task("machine", [f"wear {i}" for i in range(10)], ["keep", "service", "replace"], P, weights, rounds, features=F)


def queue(rounds: int = 30) -> Task:
    """A queue of 0–12: turn customers away or admit them, at slow or fast service; paid on arrival in a length of queue."""
    actions = [(0.0, 0.5), (0.0, 0.8), (0.7, 0.5), (0.7, 0.8)]  # arrivals, service
    P, F = np.zeros((4, 13, 13)), np.zeros((13, 4, 3))
    for length in range(13):
        for a, (come, served) in enumerate(actions):
            come = come if length < 12 else 0.0
            gone = served if length else 0.0
            for change, chance in (
                (1, come * (1 - gone)),
                (-1, gone * (1 - come)),
                (0, come * gone + (1 - come) * (1 - gone)),
            ):
                if chance:
                    P[a, length, length + change] += chance
            F[length, a] = come, length / 12, float(served > 0.6)
    weights = {"admitted": 2.0, "waiting": -1.6, "fast": -0.4}
    names = ["away, slow", "away, fast", "admit, slow", "admit, fast"]
    return _task("queue", [f"{i} waiting" for i in range(13)], names, P, weights, rounds, features=F)


def savings(rounds: int = 40) -> Task:
    """Wealth of 0–10; spend 0, 1 or 2; income of 0–2; features: what is spent, being broke, and wealth."""
    P, F = np.zeros((3, 11, 11)), np.zeros((11, 3, 3))
    for wealth in range(11):
        for a in range(3):
            spent = min(a, wealth)
            for income, chance in enumerate((0.4, 0.4, 0.2)):
                P[a, wealth, min(wealth - spent + income, 10)] += chance
            F[wealth, a] = np.sqrt(spent), float(wealth - spent == 0), (wealth - spent) / 10
    weights = {"spent": 1.0, "broke": -1.5, "comfort": 0.8}
    return _task("savings", [f"wealth {i}" for i in range(11)], ["save", "spend 1", "spend 2"], P, weights, rounds, features=F)


def treatment(absorbing: bool = False, rounds: int = 30) -> Task:
    """Severity 0–4 × toxicity 0–2, cured and dead (17 states); wait, mild and strong; all rewards are paid on arrival."""
    states = [f"severity {i}, toxicity {j}" for i in range(5) for j in range(3)] + ["cured", "dead"]
    P = np.zeros((3, 17, 17))
    for i in range(5):
        for j in range(3):
            for a, (better, worse, poison) in enumerate(((0.08, 0.3, 0.0), (0.3, 0.16, 0.25), (0.55, 0.08, 0.6))):
                dies = 0.01 + 0.02 * i * (i == 4) + 0.05 * j * (j == 2)
                P[a, 3 * i + j, 16] += dies
                for change, chance in ((-1, better), (1, worse), (0, 1 - better - worse)):
                    for toxic, odds in ((min(j + 1, 2), poison), (max(j - 1, 0), (1 - poison) * (a == 0))):
                        if odds:
                            there = 15 if i + change < 0 else 3 * min(i + change, 4) + toxic
                            P[a, 3 * i + j, there] += (1 - dies) * chance * odds
                    stay = 1 - poison - (1 - poison) * (a == 0)
                    there = 15 if i + change < 0 else 3 * min(i + change, 4) + j
                    P[a, 3 * i + j, there] += (1 - dies) * chance * stay
    arrival = np.zeros((17, 4))
    for i in range(5):
        for j in range(3):
            arrival[3 * i + j, :2] = i / 4, j / 2
    arrival[15, 2] = arrival[16, 3] = 1.0
    if absorbing:
        P[:, 15, 15] = P[:, 16, 16] = 1.0
    initial = np.zeros(17)
    initial[[3, 6, 9, 12]] = 0.25
    weights = {"severity": -1.0, "toxicity": -1.2, "cured": 3.0, "dead": -4.0}
    if absorbing:
        weights |= {"cured": 0.6, "dead": -1.5}
    return _task("treatment", states, ["wait", "mild", "strong"], P, weights, rounds, initial=initial, arrival=arrival)


def patches(random_durations: bool = True, rounds: int = 40) -> Task:
    """Food in a patch of 0–5: probe (1 or 3 units of time) or travel (2, 4 or 8) to a new patch."""
    P = np.zeros((2, 6, 6))
    for food in range(6):
        P[0, food, max(food - 1, 0)] += 0.75
        P[0, food, food] += 0.25
        P[1, food, 3:] = 0.3, 0.4, 0.3
    F = np.zeros((6, 2, 2))
    F[:, 0, 0] = np.arange(6) / 5
    F[:, 1, 1] = 1.0
    lasting, odds = np.array([1.0, 2.0, 3.0, 4.0, 8.0]), np.zeros((6, 2, 5))
    if random_durations:
        odds[:, 0, [0, 2]] = 0.6, 0.4
        odds[:, 1, [1, 3, 4]] = 0.4, 0.35, 0.25
    else:
        odds[:, 0, 0] = odds[:, 1, 3] = 1.0
    weights = {"food": 2.0, "travel": -0.5}
    names = [f"food {i}" for i in range(6)]
    return _task("patches", names, ["probe", "travel"], P, weights, rounds, features=F, durations=odds, lasting=lasting)


def chain(rounds: int = 60) -> Task:
    """Fifteen states between a near, small and a far, large end; left, right, stay; paid on arrival."""
    P = np.zeros((3, 17, 17))
    for place in range(1, 16):
        for a, step in enumerate((-1, 1, 0)):
            P[a, place, place + step] += 0.85
            P[a, place, place + 1] += 0.075
            P[a, place, place - 1] += 0.075
    arrival = np.zeros((17, 3))
    arrival[0, 0] = arrival[16, 1] = 1.0
    arrival[1:16, 2] = 1.0
    weights = {"small end": 3.0, "large end": 8.0, "step": -0.15}
    initial = np.zeros(17)
    initial[[4, 7, 10]] = 1 / 3
    names = [f"place {i}" for i in range(17)]
    return _task("chain", names, ["left", "right", "stay"], P, weights, rounds, initial=initial, arrival=arrival)


def keys(rounds: int = 40) -> Task:
    """A corridor of seven rooms, with or without the key that lies at the far left; the door at the far right needs it."""
    states = [f"room {i}, {k}" for k in ("no key", "key") for i in range(7)] + ["out"]
    P = np.zeros((3, 15, 15))
    for k in range(2):
        for room in range(7):
            for a, step in enumerate((-1, 1, 0)):
                for change, chance in ((step, 0.9), (0, 0.1)):
                    there = min(max(room + change, 0), 6)
                    with_key = 1 if there == 0 or k else 0
                    out = k and room == 6 and step == 1 and change == 1
                    P[a, 7 * k + room, 14 if out else 7 * with_key + there] += chance
    arrival = np.zeros((15, 3))
    arrival[6, 0] = arrival[13, 0] = 1.0  # a little food beside the door
    arrival[14, 1] = 1.0
    arrival[:14, 2] = 1.0
    initial = np.zeros(15)
    initial[1:7] = 1 / 6
    weights = {"food": 0.6, "out": 9.0, "step": -0.2}
    return _task("keys", states, ["left", "right", "stay"], P, weights, rounds, initial=initial, arrival=arrival)


FAMILIES: dict[str, Callable[[], Task]] = {
    "fishing": fishing,
    "inventory": inventory,
    "machine": machine,
    "queue": queue,
    "savings": savings,
    "treatment": treatment,
    "patches": patches,
    "chain": chain,
    "keys": keys,
}


def rescaled(task: Task, factors: Sequence[float]) -> Task:
    """The same task with features in other units, and weights to match."""
    by = np.asarray(factors, dtype=float)
    arrival = None if task.arrival is None else task.arrival * by
    return replace(task, features=task.features * by, weights=task.weights / by, arrival=arrival)


if __name__ == "__main__":
    for name, make in FAMILIES.items():
        task = make()
        assert np.allclose(task.transitions.sum(axis=2)[:, ~np.isin(np.arange(len(task.states)), task.terminal)], 1.0), name
        shown = [policy(task, discount, 0.5) for discount in (0.4, 0.75, 0.93)]
        gaps = [np.abs(one - two).sum(axis=1).max() / 2 for one, two in pairwise(shown)]
        table = sample(task, dict(zip("abc", shown, strict=True)), 50, np.random.default_rng(0))
        print(f"{name:10} {len(task.states):3} states, {len(task.actions)} actions, {len(table) / 3:6.0f} decisions, "
              f"largest distance of policies {gaps[0]:.2f} {gaps[1]:.2f}")  # fmt: skip
