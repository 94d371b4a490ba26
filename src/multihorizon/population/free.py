"""How horizons are distributed where no shape is assumed: the most likely distribution of (logit γ, log λ), and its clear types.

*The distribution.* Given the reward, the decisions of person i have the log-likelihood `ℓ_iq = Σ_sa N_i(s,a) log π_q(a|s)` at
node q, a pair `η_q = (x, log λ)` with `γ = Γ/(1+exp(−x))`: counts times a table of exact plans at the nodes. Weights on the nodes
maximise `Σ_i log Σ_q w_q exp ℓ_iq` to a certified gap (`numerics.mixture`). Such a maximum is a few points (Lindsay, 1983),
however people are distributed: the points are a picture, not people.

*Nodes.* A coarse grid over all that matters shows where people are, and a grid of 33 by 21 nodes covers the box around them. Then
nodes half as far apart are put around those with a weight, again and again, until this raises the log-likelihood by no more than
`10⁻³ √n`. Where people are very many, nodes are placed with some of them, and weights are fitted to all.

*Clear types.* Several points need not be several types: one normal distribution leads to several points too. So K normal
distributions are fitted to the decisions on the box's grid, K = 1, 2, …, until the Bayesian information criterion with 6K − 1
parameters rises. Normal distributions that overlap may together be one type of another shape. On the ridge between two of them,
which holds all peaks and valleys of their mixture (Ray and Lindsay, 2005), the density must fall below half of its value at the
lower peak, or they count as one type (Hennig, 2010).

*What the task cannot show.* In a task of few steps all long horizons lead to the same choices. With `π_x` the policy at the
typical temperature, x* is where the total variation from the policy of the largest discount is at most 0.05 in every state in
which anyone decided, for all x above. Where above x* people are the decisions do not say. How many there are they say by the
profile likelihood: the 95% CI has all shares m for which some distribution with the share m above x* is within 1.92 of the
largest log-likelihood. The most likely distribution with a given share is found by the same solver: t further rows that are
possible above x* alone, or below it alone, raise or lower m, and change nothing else. With t = 1, 2, 4, … the fall of the
log-likelihood is traced until it passes 1.92; between two t its root is linear in m.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.horizon import Horizon
from multihorizon.numerics.mixture import Mixture, fit_mixture
from multihorizon.parallel import Run
from multihorizon.words import decimals, from_to, in_words, percent, significant

#: `log π` `(rows,K)` at places η `(K,2)`; −inf where a soft value is infinite.
Planner = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Free:
    """The most likely distribution on nodes.

    Attributes:
        nodes: η `(G,2)`; the first are those of the box's grid.
        mixture: their weights, with the gap.
        gain: what the last refinement of the nodes added to the log-likelihood of the people who were asked.
        asked: who they are; everyone, where there are not too many.
        box: the first and the last node `(2,2)` of the grid over the box.
        sides: of that grid, along logit γ and along log λ.
        table: `log π` `(rows,G)` at the nodes.
    """

    nodes: Floats
    mixture: Mixture
    gain: float
    asked: Ints
    box: Floats
    sides: tuple[int, int]
    table: Floats

    @property
    def settled(self) -> bool:
        """Return whether finer nodes would hardly add anything."""
        return bool(self.gain <= 1e-3 * np.sqrt(self.asked.size))


def fit_free(
    counts: Sparse,
    planner: Planner,
    centre: Floats,
    run: Run,
    most_persons: int = 20_000,
    most_numbers: int = 40_000_000,
    sides: tuple[int, int] = (33, 21),
) -> Free:
    """Find the most likely distribution of people with these counts `(n,rows)`; `centre` `(2,)` is a typical η.

    The box's grid has so many nodes along logit γ and along log λ as `sides` says.
    Nodes are refined on at most `most_persons`. A table of people and nodes with more than `most_numbers` is not kept.
    """
    n = counts.shape[0]
    asked = np.arange(n)
    if n > most_persons:  # every so many in the order of their likelihoods, which is the same however people are listed
        order = np.argsort((counts @ _table(planner, centre[None]))[:, 0], kind="stable")
        asked = np.sort(order[np.linspace(0, n - 1, most_persons).astype(np.int64)])
    some = counts[asked] if n > most_persons else counts
    # Beyond logits of ±8 and temperatures e⁶ times the typical one policies hardly change any more.
    reach = np.array([[-8.0, centre[1] - 6.0], [8.0, centre[1] + 6.0]])
    coarse = _grid(reach, (17, 13))
    first = sides[0] * sides[1]
    rough = _fitted(some, _table(planner, coarse), None, 1e-4, run.part(0.0, 0.1), most_numbers)
    used = coarse[rough.weights > 1e-4 / n]
    box = np.stack([np.maximum(used.min(axis=0) - 1.0, reach[0]), np.minimum(used.max(axis=0) + 1.0, reach[1])])
    nodes = _grid(box, sides)
    spacing = (box[1] - box[0]) / (np.array(sides) - 1)
    table = _table(planner, nodes)
    mixture = _fitted(some, table, None, 1e-6, run.part(0.1, 0.3), most_numbers)
    gain = mixture.log_likelihood - rough.log_likelihood
    for level in range(10):
        if gain <= 1e-3 * np.sqrt(asked.size):
            break
        spacing = spacing / 2
        around = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]) * spacing
        new = np.clip((nodes[mixture.weights > 0][:, None] + around).reshape(-1, 2), box[0], box[1]).round(9)
        new = np.array(sorted({*map(tuple, new.tolist())} - {*map(tuple, nodes.round(9).tolist())})).reshape(-1, 2)
        kept = (mixture.weights > 0) | (np.arange(len(nodes)) < first)  # the box's grid stays
        nodes, table = np.concatenate([nodes[kept], new]), np.concatenate([table[:, kept], _table(planner, new)], axis=1)
        start = np.concatenate([mixture.weights[kept], np.zeros(len(new))])
        finer = _fitted(some, table, start, 1e-6, run.part(0.3 + 0.04 * level, 0.34 + 0.04 * level), most_numbers)
        gain = finer.log_likelihood - mixture.log_likelihood
        mixture = finer
    if n > most_persons:
        mixture = _fitted(counts, table, mixture.weights, 1e-6, run.part(0.7, 0.95), most_numbers)
    return Free(nodes, mixture, gain, asked, box, sides, table)


def _grid(box: Floats, sides: tuple[int, int]) -> Floats:
    """Return the nodes `(G,2)` of a grid over a box, x before log λ."""
    x, y = (np.linspace(box[0, i], box[1, i], sides[i]) for i in (0, 1))
    return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)


def _table(planner: Planner, nodes: Floats) -> Floats:
    """Return `log π` `(rows,K)` at the nodes; very low where a soft value is infinite."""
    log_policies = planner(nodes)
    if not np.isfinite(log_policies).any():
        raise ValueError("the soft values must be finite at some discounts and temperatures: check rewards and transitions")
    return np.maximum(log_policies, -1e15)


def _fitted(counts: Sparse, table: Floats, start: Floats | None, tol: float, run: Run, most_numbers: int) -> Mixture:
    shape = counts.shape[0], table.shape[1]
    if shape[0] * shape[1] <= most_numbers:
        return fit_mixture(counts @ table, tol=tol, start=start, run=replace(run, jobs=1))
    return fit_mixture(partial(_product, counts, table), shape, tol, start, run=run)


def _product(counts: Sparse, table: Floats, rows: Ints, columns: Ints) -> Floats:
    """Return ℓ of some rows and some columns."""
    log_likelihoods: Floats = counts[rows] @ table[:, columns]
    return log_likelihoods


@dataclass(frozen=True, eq=False)
class Normals:
    """K normal distributions of η: weights `(K,)`, means `(K,2)`, covariances `(K,2,2)`, and the log-likelihood."""

    weights: Floats
    means: Floats
    covariances: Floats
    log_likelihood: float

    def criterion(self, persons: int) -> float:
        """Return the Bayesian information criterion; less is better."""
        return (6 * self.weights.size - 1) * float(np.log(persons)) - 2 * self.log_likelihood

    def density(self, places: Floats) -> Floats:
        """Return the density of the mixture at places `(…,2)`."""
        away = places[..., None, :] - self.means
        sizes = 2 * np.pi * np.sqrt(np.linalg.det(self.covariances))
        each = np.exp(-0.5 * np.einsum("...ki,kij,...kj->...k", away, np.linalg.inv(self.covariances), away)) / sizes
        density: Floats = each @ self.weights
        return density


class NormalSearch:
    """Mixtures of normal distributions on the nodes of a grid, whose spacing is the unit of length.

    Deviations are at least half of it: nothing narrower can be told from a point.

    Args:
        log_likelihoods: ℓ `(n,G)`.
        nodes: `(G,2)`.
        spacing: `(2,)`.
    """

    def __init__(self, log_likelihoods: Floats, nodes: Floats, spacing: Floats) -> None:
        scale = log_likelihoods.max(axis=1, keepdims=True)
        # Seven digits of a likelihood are enough to count types, and half the memory.
        self.likelihoods: Any = np.exp(log_likelihoods - scale).astype(np.float32)
        self.scale = float(scale.sum())
        self.origin = nodes[0]
        self.spacing = spacing
        self.places: Floats = (nodes - nodes[0]) / spacing

    def value(self, weights: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood of weights on the nodes `(G,)`, and its gradient."""
        total = np.maximum(self.likelihoods @ weights.astype(np.float32), np.float32(1e-30))
        gradient: Floats = (self.likelihoods.T @ (1 / total)).astype(np.float64)
        return float(np.log(total.astype(np.float64)).sum()) + self.scale, gradient

    def on_nodes(self, normals: Normals) -> Floats:
        """Return each normal distribution as weights on the nodes `(G,K)`."""
        away = self.places[:, None, :] - normals.means
        log = -0.5 * np.einsum("gki,kij,gkj->gk", away, np.linalg.inv(normals.covariances), away)
        density = np.exp(log - log.max(axis=0))
        weights: Floats = density / density.sum(axis=0)
        return weights

    def expectation(self, normals: Normals, steps: int) -> Normals:
        """Take so many steps by expectation and maximisation, which never lead downhill."""
        for _ in range(steps):
            density = self.on_nodes(normals)
            value, gradient = self.value(density @ normals.weights)
            mass = density * normals.weights * gradient[:, None]
            sums = np.maximum(mass.sum(axis=0), 1e-12)
            means = (mass.T @ self.places) / sums[:, None]
            away = self.places[:, None, :] - means
            covariances = np.einsum("gk,gki,gkj->kij", mass, away, away) / sums[:, None, None] + 0.25 * np.eye(2)
            normals = Normals(sums / sums.sum(), means, covariances, value)
        return normals

    def climb(self, normals: Normals) -> Normals:
        """Return the most likely mixture near this one: a quasi-Newton method on logits of weights, means, and roots of
        precisions."""
        k = normals.weights.size
        roots = np.linalg.cholesky(np.linalg.inv(normals.covariances))
        logs = np.log(roots[:, [0, 1], [0, 1]])
        start = np.concatenate([np.log(normals.weights[:, None]), normals.means, logs, roots[:, 1:, 0]], axis=1)

        def read(x: Floats) -> tuple[Normals, Floats]:
            table = x.reshape(k, 6)
            shares = np.exp(table[:, 0] - table[:, 0].max())
            root = np.zeros((k, 2, 2))
            root[:, 0, 0], root[:, 1, 1], root[:, 1, 0] = np.exp(table[:, 3]), np.exp(table[:, 4]), table[:, 5]
            covariances: Any = np.linalg.inv(root @ root.transpose(0, 2, 1))
            return Normals(shares / shares.sum(), table[:, 1:3], covariances, np.nan), root

        def loss(x: Floats) -> tuple[float, Floats]:
            normals, root = read(x)
            density = self.on_nodes(normals)
            value, gradient = self.value(density @ normals.weights)
            pull = density * gradient[:, None]
            sums = pull.sum(axis=0)
            pull = (pull - density * sums) * normals.weights  # less the change of the sum over nodes, which stays 1
            away = self.places[:, None, :] - normals.means
            along = np.einsum("gki,kij->gkj", away, root)
            slopes = np.empty((k, 6))
            slopes[:, 0] = normals.weights * (sums - sums @ normals.weights)
            slopes[:, 1:3] = np.einsum("gk,gkj,kij->ki", pull, along, root)
            slopes[:, 3] = -np.einsum("gk,gk,gk->k", pull, along[..., 0], away[..., 0]) * root[:, 0, 0]
            slopes[:, 4] = -np.einsum("gk,gk,gk->k", pull, along[..., 1], away[..., 1]) * root[:, 1, 1]
            slopes[:, 5] = -np.einsum("gk,gk,gk->k", pull, along[..., 0], away[..., 1])
            return -value, -slopes.ravel()

        from scipy.optimize import minimize  # noqa: PLC0415  it takes longer to import than a small fit takes

        free = (None, None)
        side = float(np.abs(self.places).max())
        bounds = [free, (-side, 2 * side), (-side, 2 * side), (-6.0, np.log(2.0)), (-6.0, np.log(2.0)), (-4.0, 4.0)] * k
        end = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60, "ftol": 1e-10})
        best = read(end.x)[0]
        return Normals(best.weights, best.means, best.covariances, -float(end.fun))

    def one(self) -> Normals:
        """Return the most likely normal distribution."""
        centre = self.places.mean(axis=0)
        return self.climb(self.expectation(Normals(np.ones(1), centre[None], np.diag(centre**2)[None], np.nan), 20))

    def one_more(self, normals: Normals) -> Normals:
        """Return the most likely mixture of one more, begun with each cut in two lengthwise, or with a new one where most is
        lacking."""
        starts = []
        for j in range(normals.weights.size):
            sizes, axes = np.linalg.eigh(normals.covariances[j])
            move = np.sqrt(sizes[1]) * axes[:, 1]
            half = normals.covariances[j] - 0.7 * np.outer(move, move)
            parts = [(normals.weights[j] / 2, normals.means[j] + sign * move, half) for sign in (-1, 1)]
            starts.append(self._with(normals, parts, np.arange(normals.weights.size) != j))
        lacking = self.places[int(np.argmax(self.value(self.on_nodes(normals) @ normals.weights)[1]))]
        starts.append(self._with(normals, [(0.05, lacking, 2.0 * np.eye(2))], np.ones(normals.weights.size, dtype=bool)))
        tried = [self.expectation(start, 12) for start in starts]
        return self.climb(max(tried, key=lambda each: each.log_likelihood))

    def _with(self, normals: Normals, parts: list[tuple[Any, Floats, Floats]], kept: Any) -> Normals:
        weights = np.array([*normals.weights[kept], *(part[0] for part in parts)])
        means = np.array([*normals.means[kept], *(part[1] for part in parts)])
        covariances = np.array([*normals.covariances[kept], *(part[2] for part in parts)])
        return Normals(weights / weights.sum(), means, covariances, np.nan)

    def search(self, most: int = 6) -> list[Normals]:
        """Return the most likely mixtures of 1, 2, … normal distributions, until one more does not pay."""
        mixtures = [self.one()]
        persons = len(self.likelihoods)
        while len(mixtures) < most:
            mixtures.append(self.one_more(mixtures[-1]))
            if mixtures[-1].criterion(persons) >= mixtures[-2].criterion(persons):
                break
        return mixtures


def joined(normals: Normals) -> list[list[int]]:
    """Return which of the normal distributions are one type, in order of logit γ: those with no clear valley on the way."""
    k = normals.weights.size
    precisions = np.linalg.inv(normals.covariances)
    group = np.arange(k)
    share = np.linspace(0, 1, 201)[:, None, None]
    for i in range(k):
        for j in range(i + 1, k):
            both = (1 - share) * precisions[i] + share * precisions[j]
            to = (1 - share[:, :, 0]) * (precisions[i] @ normals.means[i]) + share[:, :, 0] * (precisions[j] @ normals.means[j])
            height = normals.density(np.linalg.solve(both, to[:, :, None])[:, :, 0])
            top = int(np.argmax(height))
            # from the highest peak, the lowest point on the way to any other place, against the height there
            sides = (height[top::-1], height[top:])
            clear = any(bool((np.minimum.accumulate(side) < 0.5 * side).any()) for side in sides)
            if not clear:
                group[group == group[j]] = group[i]
    types = [np.flatnonzero(group == g).tolist() for g in np.unique(group)]
    return sorted(types, key=lambda type_: float(normals.weights[type_] @ normals.means[type_, 0] / normals.weights[type_].sum()))


def flat_from(planner: Planner, same_state: Sparse, log_temperature: float, alike: float = 0.05) -> float:
    """Return x*: above it, policies at this temperature differ by no more than `alike` from that of the largest discount."""
    places = np.linspace(-6.0, 12.0, 181)
    policies = np.exp(_table(planner, np.stack([places, np.full_like(places, log_temperature)], axis=1)))
    variation = (same_state @ np.abs(policies - policies[:, -1:])).max(axis=0) / 2
    apart = np.flatnonzero(variation > alike)
    return float(places[apart[-1] + 1]) if apart.size else -np.inf


def share_interval(log_likelihoods: Floats, above: Bools, start: Floats) -> tuple[float, float, float]:
    """Return the most likely share at the nodes `above` `(G,)`, and the ends of its 95% CI; `start` are weights `(G,)`."""
    n = len(log_likelihoods)
    best = fit_mixture(log_likelihoods, start=start)
    share = float(best.weights[above].sum())
    ends = []
    for side, limit in ((~above, 0.0), (above, 1.0)):
        fallen = 0.0
        at = share
        weights = best.weights
        end = limit
        further = 1
        while side.any() and abs(at - limit) > 1e-4 and further <= 1024:
            rows = partial(_with_further_rows, log_likelihoods, np.where(side, 0.0, -np.inf))
            mixture = fit_mixture(rows, (n + further, above.size), start=weights)
            fall = float(np.sqrt(2 * max(best.log_likelihood - mixture.rows[:n].sum(), 0.0)))
            there = float(mixture.weights[above].sum())
            weights = mixture.weights
            if fall > 1.96:
                end = at + (there - at) * (1.96 - fallen) / (fall - fallen)
                break
            fallen = fall
            at = there
            further = 2 * further
        ends.append(end)
    return share, ends[0], ends[1]


def _with_further_rows(log: Floats, further: Floats, rows: Ints, columns: Ints) -> Floats:
    """Return ℓ of rows, those behind the last of `log` being `further`."""
    return np.where((rows < len(log))[:, None], log[np.ix_(np.minimum(rows, len(log) - 1), columns)], further[columns])


def describe_free(
    counts: Sparse,
    planner: Planner,
    same_state: Sparse,
    largest: float,
    centre: Floats,
    normal: float,
    run: Run,
    alike: float = 0.05,
    **limits: Any,
) -> dict[str, Any]:
    """Return what `evidence["population"]["distribution"]` says of people with these counts `(n,rows)`.

    Args:
        counts: N.
        planner: the table of log π at given η.
        same_state: whether two rows are of one state `(rows,rows)`.
        largest: Γ.
        centre: η of a typical person.
        normal: the log-likelihood of the same people where the population is normal.
        run: the run.
        alike: policies whose probabilities differ by no more than this hardly differ.
        **limits: those of `fit_free`.
    """
    free = fit_free(counts, planner, centre, run, **limits)
    first = free.sides[0] * free.sides[1]
    used = np.flatnonzero(free.mixture.weights > 0)
    used = used[np.lexsort(free.nodes[used].T[::-1])]
    below = np.cumsum(free.mixture.weights[used])
    grid = free.nodes[:first]
    spacing = (free.box[1] - free.box[0]) / (np.array(free.sides) - 1)
    tried = NormalSearch(counts[free.asked] @ free.table[:, :first], grid, spacing).search()
    criteria = [each.criterion(free.asked.size) for each in tried]
    best = tried[int(np.argmin(criteria))]
    types = []
    for members in joined(best):
        parts = best.weights[members]
        mean = (parts @ best.means[members]) / parts.sum() * spacing + free.box[0]
        away = (best.means[members] * spacing + free.box[0] - mean)[:, 0]
        variance = float(parts @ (best.covariances[members, 0, 0] * spacing[0] ** 2 + away**2) / parts.sum())
        types.append(
            {
                "share": float(parts.sum()),
                "discount": float(largest * expit(mean[0])),
                "temperature": float(np.exp(mean[1])),
                "spread": float(np.sqrt(variance)),
                "at_most": bool(variance < 1.1 * (0.5 * spacing[0]) ** 2),
                "normals": len(members),
            }
        )
    flat = flat_from(planner, same_state, float(centre[1]), alike)
    # The box may end below x*, or begin above it, and still there may be people on the other side.
    ends = [max(flat, float(free.box[1, 0])) + 0.5, *([min(flat, float(free.box[0, 0])) - 0.5] if np.isfinite(flat) else [])]
    beyond = np.concatenate([_grid(np.array([[end, free.box[0, 1]], [end, free.box[1, 1]]]), (1, free.sides[1])) for end in ends])
    every = np.concatenate([free.nodes, beyond])
    table = np.concatenate([free.table, _table(planner, beyond)], axis=1)
    weights = np.concatenate([free.mixture.weights, np.zeros(len(beyond))])
    share, least, most = share_interval(counts[free.asked] @ table, every[:, 0] >= flat, weights)
    return {
        "persons": int(counts.shape[0]),
        "discounts": (largest * expit(free.nodes[used, 0])).tolist(),
        "temperatures": np.exp(free.nodes[used, 1]).tolist(),
        "weights": free.mixture.weights[used].tolist(),
        "quartiles": (
            largest * expit(free.nodes[used[np.searchsorted(below, np.array([0.25, 0.5, 0.75]) * below[-1])], 0])
        ).tolist(),
        "log_likelihood": free.mixture.log_likelihood,
        "normal_log_likelihood": normal,
        "gap": free.mixture.gap,
        "converged": bool(free.mixture.converged and free.settled),
        "nodes": len(free.nodes),
        "refinement": {"gain": free.gain, "persons": int(free.asked.size)},
        "types": types,
        "types_decided": {"criteria": criteria, "persons": int(free.asked.size)},
        "indistinguishable": {
            "discount": float(largest * expit(flat)) if np.isfinite(flat) else 0.0,
            "share": share,
            "interval": [least, most],
            "difference": alike,
        },
    }


def distribution_words(distribution: Mapping[str, dict[str, Any]], horizon: Horizon | None = None) -> list[str]:
    """Return what `evidence["population"]["distribution"]` says, in sentences, with horizons where the task's is known."""
    words = []
    for name, group in distribution.items():
        whose = "" if len(distribution) == 1 else f" ({name})"
        types = group["types"]
        hidden = group["indistinguishable"]
        each = []
        for kind in types:
            near = f"discounts near {decimals(kind['discount'], 2)}"
            look = f"have {near}" if horizon is None else f"look {horizon.text(kind['discount'])} ahead ({near})"
            each.append(f"{percent(kind['share'])} {look}")
        if len(types) > 1:
            words.append(f"There are {len(types)} clear types of people{whose}: {in_words(each)}.")
        elif types[0]["normals"] > 1:
            words.append(f"There is one clear type of person{whose}, but their logits are not distributed normally.")
        else:
            words.append(f"There is one clear type of person{whose}: one normal distribution suffices.")
        least, most = hidden["interval"]
        if most >= 0.01:
            many = f"{from_to([percent(least), percent(most)])} of people{whose} have"
            if least < 0.005:
                many = f"Up to {percent(most)} of people{whose} may have"
            words.append(
                f"{many} a discount of {decimals(hidden['discount'], 2)} or more. How much further they look ahead "
                f"this task cannot show: "
                "from there on no choice changes by more than "
                f"{decimals(100 * hidden['difference'], 0)} percentage points."
            )
        if not group["converged"]:
            words.append(
                f"The estimate of the nonparametric distribution{whose} ended early: others are at most "
                f"{significant(group['gap'], 2)} more likely on "
                f"these nodes, and the last refinement of them added {significant(group['refinement']['gain'], 2)} "
                f"to the log-likelihood."
            )
    return words
