"""What recorded people say: predictions of decisions held out, effects of covariates, the shape of look-ahead, and what if.

    python benchmarks/recorded_people.py FOLDER held-out [--splits 10]
    python benchmarks/recorded_people.py FOLDER effects
    python benchmarks/recorded_people.py FOLDER random-groups [--splits 100]
    python benchmarks/recorded_people.py FOLDER families
    python benchmarks/recorded_people.py FOLDER models
    python benchmarks/recorded_people.py FOLDER noise
    python benchmarks/recorded_people.py FOLDER asteroids
    python benchmarks/recorded_people.py FOLDER deviations [--no-groups]

FOLDER holds a study with a known reward: `decisions.csv`, `transitions.csv`, `features_points.csv` (state, action, points) and
`persons.csv`. The study of 44 people on the page "What 44 recorded people say" comes from the repository `dimarkov/pybefit`.
Noise is the second word of its states.

*Random groups.* Persons are put into two groups by lot, so there is nothing to find. A test at 5% should see a difference in 5
of 100 splits.

*Noise.* The same persons with low and with high noise: the change is the same for everyone, or persons differ in it; and the same
decisions as those of different persons.

*Asteroids.* People are fitted in the rounds without asteroids (noise is low). `mh.predict` then says what they do among
asteroids (noise is high), where transitions and states are others, and only the points of actions are shared.

*Models.* AIC of models of choice, each with own temperatures: values with entropy, by the best action and by the mean of choices,
lapses and stickiness in common, and families of look-ahead. Discounts, depths and κ are each person's own.

*Deviations.* Do they share a goal? The reward is that of `features.csv`, in whose span the points are. One goal, nearly one and
several are compared on held-out halves. A folder without `transitions.csv` holds the monthly decisions of buses in bins of 5,000
miles, each group of buses an expert; the next bin of a bus that keeps its engine is as frequent as in the table, and a bus whose
engine is replaced goes on from bin 0. The reward is what replacing costs, and what each bin costs.

*Held out.* Each person's episodes are split into two halves. Each half is predicted from a fit to the other, and both
log-likelihoods are added. "Each alone" is maximum likelihood with each person's own discount and temperature. "One for all" has
one discount and own temperatures. The population predicts in two ways: by each person's shrunken discount and temperature, and by
the average over all that are likely for that person, `log ∫ p(held out | η) p(η | seen) dη`, here on a grid.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp
from scipy.stats import chi2, multivariate_normal

import multihorizon as mh
from multihorizon.data.side_tables import read_features, read_known_reward, read_transitions

#: The grid of logit discounts and log temperatures on which integrals are sums.
LOGITS, LOG_TEMPERATURES = np.arange(-6.0, 8.01, 0.2), np.arange(-1.0, 5.01, 0.1)


class Study:
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.mdp = read_transitions(folder / "transitions.csv")
        self.points = read_known_reward(folder / "features_points.csv", self.mdp)
        self.table = mh.Demonstrations.from_csv(folder / "decisions.csv")
        self.frame = self.table.to_frame()
        self.persons = pd.read_csv(folder / "persons.csv", dtype={"expert": str})
        self.problem = mh.Problem(self.mdp, self.table)

    def log_policy(self, discount: float, temperature: float) -> np.ndarray:
        """`log π` `(S,A)`."""
        reward = np.reshape(self.points, (self.mdp.n_actions, self.mdp.n_states)).T
        policy = mh.soft_plan(self.mdp, reward, discount, temperature).policy
        return np.log(np.maximum(policy, 1e-300))

    def of_rows(self, rows: np.ndarray) -> mh.Problem:
        """The problem of some rows of the table."""
        return mh.Problem(self.mdp, mh.Demonstrations.from_frame(self.frame[rows]))


def splits(frame: pd.DataFrame, count: int) -> Iterator[tuple[str, np.ndarray]]:
    """Which rows are in the first half: odd episodes, the first half of the session, and episodes drawn at random."""
    place = frame.groupby("expert")["episode"].transform(lambda episode: pd.factorize(episode)[0]).to_numpy()
    length = frame.groupby("expert")["episode"].transform("nunique").to_numpy()
    yield "odd and even episodes", place % 2 == 0
    yield "first and second half", place < length / 2
    for seed in range(count):
        rng, first = np.random.default_rng(seed), np.zeros(len(frame), dtype=bool)
        for _, rows in frame.groupby("expert", sort=False).indices.items():
            episodes = np.unique(place[rows])
            first[rows] = np.isin(place[rows], rng.permutation(episodes)[: episodes.size // 2])
        yield f"random {seed}", first


def predicted(study: Study, seen: mh.Problem, unseen: mh.Problem, grid: np.ndarray) -> np.ndarray:
    """The log-likelihood of what was not seen: each alone, one for all, and the population in both ways."""
    counts = {expert.name: np.asarray(expert.counts) for expert in unseen.experts}

    def value(found: mh.Solution) -> float:
        pairs = zip(found.experts, found.discounts, found.temperature, strict=True)
        return float(sum((counts[name] * study.log_policy(gamma, heat)).sum() for name, gamma, heat in pairs))

    everyone = dict.fromkeys(seen.names, "all")
    alone = mh.solve(seen, mh.MaximumLikelihood("per_expert", known_reward=study.points))
    one = mh.solve(seen, mh.MaximumLikelihood("per_expert", known_reward=study.points, groups=everyone))
    population = mh.solve(seen, mh.Population(known_reward=study.points))
    before = [np.tensordot(grid, np.asarray(expert.counts), 2) for expert in seen.experts]
    after = [np.tensordot(grid, counts[expert.name], 2) for expert in seen.experts]
    prior = log_prior(population)
    whole = sum(logsumexp(prior + a + b) - logsumexp(prior + a) for a, b in zip(before, after, strict=True))
    return np.array([value(alone), value(one), value(population), whole])


def log_prior(population: mh.Solution) -> np.ndarray:
    """The fitted distribution of persons on the grid."""
    found = population.evidence["population"]
    centre = [found[kind]["Intercept"]["estimate"] for kind in ("discount", "temperature")]
    width = np.array([found["spread"][kind]["estimate"] for kind in ("discount", "temperature")])
    rho = found["spread"]["correlation"]["estimate"]
    places = np.stack(np.meshgrid(LOGITS, LOG_TEMPERATURES, indexing="ij"), axis=2)
    density: np.ndarray = multivariate_normal(centre, np.outer(width, width) * [[1, rho], [rho, 1]]).logpdf(places)
    return density


def held_out(study: Study, count: int) -> None:
    grid = np.array([[study.log_policy(float(expit(x)), float(np.exp(y))) for y in LOG_TEMPERATURES] for x in LOGITS])
    rows = []
    print("held out: each alone, one for all, population by shrunken values, population by averages")
    for name, first in splits(study.frame, count):
        halves = study.of_rows(first), study.of_rows(~first)
        values = predicted(study, *halves, grid) + predicted(study, *halves[::-1], grid)
        rows.append(values)
        print(f"{name:22} {values.round(1).tolist()}", flush=True)
    drawn = np.array(rows[2:])
    if count:
        print(f"mean of {count} random splits {drawn.mean(axis=0).round(1).tolist()}")
        for name, column in (("shrunken values", 2), ("averages", 3)):
            gains = drawn[:, [column]] - drawn[:, :2]
            print(f"gain by {name}: mean {gains.mean(axis=0).round(1).tolist()}, least {gains.min(axis=0).round(1).tolist()}")


def effects(study: Study) -> None:
    """Each covariate that varies: the test with persons as the unit, and the one that treats a group as one expert."""
    for column in ("gender", "order", "age"):
        if column not in study.persons or study.persons[column].nunique() < 2:
            continue
        found = mh.solve(study.problem, mh.Population(f"~ {column}", study.persons, known_reward=study.points))
        for kind in ("discount", "temperature"):
            for term, effect in found.evidence["population"][kind].items():
                low, high = effect["interval"]
                print(f"{kind:12} {term:22} {effect['estimate']:6.3f} [{low:.3f}, {high:.3f}]  p = {effect['p']:.3g}")
        values = study.persons.set_index("expert")[column]
        if pd.api.types.is_numeric_dtype(values):
            values = (values > values.median()).map({True: "above the median", False: "up to the median"})
        print(f"  naive p, where each group of {column} is one expert: {naive_p(study, values.to_dict()):.2g}")
    plain = mh.solve(study.problem, mh.Population(known_reward=study.points))
    people = plain.evidence["population"]
    print("spread", people["spread"], "predictions", people["predictions"])
    alone = mh.solve(study.problem, mh.MaximumLikelihood("per_expert", known_reward=study.points))
    for name, values in (("raw", alone.discounts), ("shrunken", plain.discounts)):
        print(f"{name} quartiles {np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).round(3).tolist()}")
    reliability = people["individuals"]["discount_reliability"]
    print(
        f"at 0 or 1: {int(((alone.discounts == 0) | (alone.discounts == 1)).sum())}; mean reliability {np.mean(reliability):.2f}"
    )


def random_groups(study: Study, count: int) -> None:
    """How often tests see a difference between groups that were drawn by lot."""
    names = list(study.problem.names)
    seen = {"persons as the unit": 0, "each group as one expert": 0}
    for seed in range(count):
        drawn = np.random.default_rng(seed).permutation(len(names)) % 2
        frame = pd.DataFrame({"expert": names, "lot": np.where(drawn, "b", "a")})
        found = mh.solve(study.problem, mh.Population("~ lot", frame, known_reward=study.points))
        seen["persons as the unit"] += found.evidence["population"]["discount"]["lot[T.b]"]["p"] < 0.05
        seen["each group as one expert"] += naive_p(study, dict(zip(names, frame["lot"], strict=True))) < 0.05
        if (seed + 1) % 20 == 0:
            print(f"{seed + 1} splits, differences seen: {seen}", flush=True)


def naive_p(study: Study, groups: dict[str, str]) -> float:
    """The likelihood-ratio test of equal discounts where all persons of a group are one expert."""
    labels = sorted(set(groups.values()))
    counts = [sum(np.asarray(e.counts) for e in study.problem.experts if groups[e.name] == label) for label in labels]
    experts = [mh.Expert(label, study.mdp, "demonstrations", counts=c) for label, c in zip(labels, counts, strict=True)]
    apart, together = (
        mh.solve(mh.Problem(study.mdp, experts), mh.MaximumLikelihood("per_expert", known_reward=study.points, groups=tied))
        for tied in (None, dict.fromkeys(labels, "all"))
    )
    twice = 2 * (apart.evidence["log_likelihood"] - together.evidence["log_likelihood"])
    return float(chi2.sf(twice, len(labels) - 1))


def families(study: Study) -> None:
    solver = mh.MaximumLikelihood("per_expert", known_reward=study.points)
    print(mh.compare_lookahead(study.problem, demonstrations=study.table, solver=solver))


def models(study: Study) -> None:
    """The log-likelihood and the AIC of each model of choice, and what becomes of the discounts."""
    changed: dict[str, dict] = {"soft": {}, "max": {"value": "max"}, "mean": {"value": "mean"}}
    changed |= {"lapses": {"lapse": "estimated"}, "stickiness": {"stickiness": "estimated"}}
    changed |= {"max, lapses": {"value": "max", "lapse": "estimated"}}
    changed |= {family.name: {"lookahead": family} for family in (mh.Hyperbolic(), mh.QuasiHyperbolic(), mh.Depth())}
    people, first = len(study.problem.names), np.zeros(0)
    for name, change in changed.items():
        begin = time.process_time()
        found = mh.solve(study.problem, mh.MaximumLikelihood("per_expert", known_reward=study.points, starts=1, **change))
        beside = {"quasi-hyperbolic": people}.get(name, sum(value == "estimated" for value in change.values()))
        value, parameters = found.evidence["log_likelihood"], 2 * people + beside
        if np.isfinite(found.discounts).all() and "stickiness" not in change:  # of everybody, also whose climb ended at a kink
            pairs = zip(study.problem.experts, found.policies(), strict=True)
            value = sum(float((np.asarray(one.counts) * np.log(np.maximum(plan, 1e-300))).sum()) for one, plan in pairs)
        seconds = time.process_time() - begin
        print(
            f"{name:18} {value:10.2f}  {parameters} parameters  AIC {2 * (parameters - value):8.1f}  {seconds:5.1f} s", end="  "
        )
        if found.evidence.get("planner"):
            print({key: found.evidence["planner"][key] for key in ("lapse", "stickiness")}, end="  ")
        if np.isfinite(found.discounts).any():
            first = first if first.size else found.discounts
            ranks = pd.Series(found.discounts).corr(pd.Series(first), method="spearman")
            print(f"quartiles {np.nanquantile(found.discounts, [0.25, 0.5, 0.75]).round(3).tolist()}, ranks {ranks:.2f}", end="")
        print(flush=True)


def noise(study: Study) -> None:
    """The effect of noise on the same persons, and on the same decisions as those of different persons."""
    frame = study.frame.assign(noise=study.frame["state"].str.split().str[1])
    table = study.table.under(frame[["expert", "episode", "noise"]].drop_duplicates())
    frame["expert"] += " " + frame["noise"]
    persons = frame[["expert", "noise"]].drop_duplicates()
    strangers = mh.Problem(study.mdp, mh.Demonstrations.from_frame(frame.drop(columns="noise")))
    asked = {formula: (mh.Problem(study.mdp, table), formula, None) for formula in ("~ noise", "~ noise + (noise | expert)")}
    for name, (problem, formula, rows) in (asked | {"different persons": (strangers, "~ noise", persons)}).items():
        begin = time.process_time()
        solver = mh.Population(formula, rows, known_reward=study.points, reference={"noise": "low"})
        solution = mh.solve(problem, solver)
        print(f"{name}: {time.process_time() - begin:.1f} processor seconds. {solution.message}")
        found = solution.evidence["population"]
        for kind in ("discount", "temperature"):
            for term, effect in found[kind].items():
                low, high = effect["interval"]
                print(f"    {kind:12} {term:14} {effect['estimate']:6.3f} ± {effect['standard_error']:.3f}", end=" ")
                print(f"[{low:.3f}, {high:.3f}]  p = {effect['p']:.2g}")
        print("    spread", found["spread"], "slopes", found["slopes"])
        print("    variance", found["variance"], "alike", found["alike"], "predictions", found["predictions"])


def rounds(study: Study, noise: str) -> tuple[mh.MDP, np.ndarray, mh.Demonstrations]:
    """The task, the points of actions `(A·S,1)` and the decisions of the rounds with this noise."""
    keep = [i for i, name in enumerate(study.mdp.state_names) if name.startswith("end") or name.split()[1] == noise]
    moves = [study.mdp.stacked[a * study.mdp.n_states + np.array(keep)][:, keep] for a in range(study.mdp.n_actions)]
    names = [study.mdp.state_names[i] for i in keep]
    points = np.reshape(study.points, (study.mdp.n_actions, -1))[:, keep].reshape(-1, 1)
    frame = study.frame[study.frame["state"].astype(str).str.split().str[1] == noise]
    first = frame[frame["step"] == 0]["state"].value_counts(normalize=True)
    initial = [float(first.get(name, 0.0)) for name in names]
    task = mh.MDP(
        moves,
        initial,
        study.mdp.terminal[keep],
        study.mdp.available[keep],
        state_names=names,
        action_names=study.mdp.action_names,
    )
    return task, points, mh.Demonstrations.from_frame(frame)


def asteroids(study: Study) -> None:
    """Fit without asteroids, predict with asteroids, and compare with what was recorded there."""
    (calm, calm_points, seen), (rough, points, later) = rounds(study, "low"), rounds(study, "high")
    fitted = mh.solve(mh.Problem(calm, seen, features=calm_points, feature_names=["points"]), mh.Population())
    found = mh.predict(fitted, transitions=rough, features=points)
    recorded = {expert.name: np.asarray(expert.counts) for expert in mh.Problem(rough, later).experts}
    counts, jump = np.stack([recorded[name] for name in found.experts]), rough.action_names.index("jump")
    print(f"status {sorted(set(found.status))}; decisions {int(counts.sum())}")
    refitted = mh.solve(mh.Problem(rough, later, features=points, feature_names=["points"]), mh.Population())
    own = mh.predict(refitted)
    order = [own.experts.index(name) for name in found.experts]
    for name, policies in (("predicted", found.after), ("fitted to these same decisions", own.after[order])):
        value = (counts * np.log(np.maximum(policies, 1e-300))).sum() / counts.sum()
        print(f"mean log-likelihood of a decision, {name}: {value:.3f}")
    visits = counts.sum(axis=2)
    chosen, expected = counts[:, :, jump], visits * found.after[:, :, jump]
    before = np.stack([np.asarray(expert.counts) for expert in mh.Problem(calm, seen).experts])
    print(f"jumps before {before[:, :, jump].sum() / before.sum():.3f}")
    print(f"jumps predicted {expected.sum() / visits.sum():.3f}, recorded {chosen.sum() / visits.sum():.3f}")
    for low, high in zip(np.arange(0, 1, 0.2), np.arange(0.2, 1.01, 0.2), strict=True):
        own_part = (found.after[:, :, jump] >= low) & ((found.after[:, :, jump] < high) | (high > 0.99))
        n = visits[own_part].sum()
        print(f"  {low:.1f} to {high:.1f}: {int(n)}, {expected[own_part].sum() / n:.3f}, {chosen[own_part].sum() / n:.3f}")
    share, predicted_share = chosen.sum(axis=1) / visits.sum(axis=1), expected.sum(axis=1) / visits.sum(axis=1)
    print(f"correlation between persons of the two shares {np.corrcoef(share, predicted_share)[0, 1]:.2f}")
    typical = mh.predict(fitted, transitions=rough, features=points, persons="groups").outcomes
    print(typical[typical["quantity"] == "reward"].assign(weight=fitted.reward[0]).to_string())
    gained = found.outcomes[found.outcomes["quantity"] == "reward"]
    starts = int((later.to_frame()["step"] == 0).sum())
    real = (counts.sum(axis=0).T.ravel() * points[:, 0]).sum() / starts
    print(f"points per round predicted {gained['after'].mean() / fitted.reward[0]:.2f}, of recorded decisions {real:.2f}")
    print("discounts, quartiles:", *(np.quantile(one.discounts, [0.25, 0.5, 0.75]).round(2) for one in (fitted, refitted)))
    chance = np.log(1 / rough.live.sum(axis=1).clip(1))
    print(f"chance {(visits * chance).sum() / visits.sum():.3f}")


def deviations(problem: mh.Problem, table: mh.Demonstrations, groups: bool) -> None:
    """How far goals are from shared, and how well each model of that predicts."""
    begin = time.process_time()
    found = mh.solve(problem, mh.MaximumLikelihood(deviations="estimated"))
    said = found.evidence["deviations"]
    print(f"{time.process_time() - begin:.0f} processor seconds. {found.message}")
    ends = {"deviation": said.interval, "share of the range": said.share_of_range[1:], "choices of 100": said.choices_moved[1:]}
    values = said.estimated, said.share_of_range[0], said.choices_moved[0]
    for (name, (low, high)), value in zip(ends.items(), values, strict=True):
        print(f"  {name:18} {value:.4g} [{low:.4g}, {high:.4g}]")
    print(f"  p of one reward {said.p_shared:.2g}")
    rows = zip(found.discounts, said.if_shared["discounts"], strict=True)
    print("  discounts, quartiles, with deviations and with one reward:")
    print("   ", *(np.nanquantile(column, [0.25, 0.5, 0.75]).round(3).tolist() for column in zip(*rows, strict=True)))
    print("  reward", dict(zip(problem.parameter_names, found.reward.round(2).tolist(), strict=True)))
    begin = time.process_time()
    compared = mh.compare_goals(found, table, several=groups)
    print(f"{time.process_time() - begin:.0f} processor seconds. {compared.summary()}")
    print(compared.to_frame().to_string(index=False), f"\ngroups without each half: {[len(one) for one in compared.groups]}")


def buses(folder: Path) -> tuple[mh.Problem, mh.Demonstrations]:
    """The problem of the buses, and the table."""
    frame = pd.read_csv(folder / "decisions.csv", dtype={"expert": str, "episode": str})
    later = frame.groupby(["expert", "episode"])["state"].shift(-1)
    moved = (later - np.where(frame["action"] == "replace", 0, frame["state"])).dropna()
    chances, size = moved[moved >= 0].value_counts(normalize=True), 90
    moves = np.zeros((2, size, size))
    for step, chance in chances.items():
        for x in range(size):
            moves[0, x, min(x + int(step), size - 1)] += chance
            moves[1, x, int(step)] += chance
    mdp = mh.MDP(moves, initial=np.eye(size)[0], state_names=[str(x) for x in range(size)], action_names=["keep", "replace"])
    table = mh.Demonstrations.from_frame(frame.drop(columns=[c for c in ("next_state",) if c in frame]), cut_off=True)
    features = np.zeros((2 * size, 2))
    features[:size, 1], features[size:, 0] = -np.arange(size) / 10, -1.0
    return mh.Problem(mdp, table, features=features, feature_names=["replacing", "ten bins"]), table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "what", choices=["held-out", "effects", "random-groups", "families", "models", "noise", "asteroids", "deviations"]
    )
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--no-groups", action="store_true", help="compare no groups, which take long for many persons")
    given = parser.parse_args()
    if given.what == "deviations" and not (given.folder / "transitions.csv").exists():
        deviations(*buses(given.folder), not given.no_groups)
        return
    study = Study(given.folder)
    if given.what in ("held-out", "random-groups"):
        {"held-out": held_out, "random-groups": random_groups}[given.what](study, given.splits)
    elif given.what == "deviations":
        matrix, names = read_features(given.folder / "features.csv", study.mdp)
        problem = mh.Problem(study.mdp, study.table, features=matrix, feature_names=names)
        deviations(problem, study.table, not given.no_groups)
    else:
        whole = {"effects": effects, "families": families, "models": models, "noise": noise, "asteroids": asteroids}
        whole[given.what](study)


if __name__ == "__main__":
    main()
