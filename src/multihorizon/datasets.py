"""Public recordings of people, read from a checkout of the repository that holds them, in the tables of this library.

The recordings stay where they are: nothing is shipped or downloaded. `space_adventure` reads the folder of a repository that a
reader has cloned and returns pandas data frames that `fit`, `Demonstrations.from_frame` and the other readers take as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from multihorizon.domains.people import Place, SpaceAdventure, adventure_from


@dataclass(frozen=True)
class RecordedStudy:
    """A study of recorded people, as tables.

    Attributes:
        decisions: `expert, episode, step, state, action, next_state`, one row per decision.
        persons: one row per participant, with age and gender where the recordings hold them.
        episodes: `expert, episode` and the conditions of each mini-block: noise and travels.
        transitions: `state, action, next_state, probability`: the rules of the task.
        features: `state, action` and one column per feature of the reward.
        points: `state, action, points`: the expected points of each decision, which participants know.
        source: the repository and the publication of the recordings.
        licence: the licence under which they are published.
    """

    decisions: pd.DataFrame
    persons: pd.DataFrame
    episodes: pd.DataFrame
    transitions: pd.DataFrame
    features: pd.DataFrame
    points: pd.DataFrame
    source: str
    licence: str

    def to_csv(self, folder: str | Path) -> list[Path]:
        """Write each table as a CSV file into a folder, with the source and licence beside them, and return the paths."""
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        paths = []
        for name in ("decisions", "persons", "episodes", "transitions", "features", "points"):
            paths.append(out / ("features_points.csv" if name == "points" else f"{name}.csv"))
            getattr(self, name).to_csv(paths[-1], index=False)
        paths.append(out / "SOURCE.txt")
        paths[-1].write_text(f"{self.source}\n{self.licence}\n", encoding="utf-8")
        return paths


def space_adventure(folder: str | Path) -> RecordedStudy:
    """Read the recordings of the Space Adventure Task from a clone of the repository `dimarkov/pybefit`.

    Participants travel between six planets two or three times in each of 100 mini-blocks (`multihorizon.domains.space_adventure`
    describes the rules). A state holds the planets, the noise, the travels left and the position: `555212 low 2 p3`.

    Args:
        folder: the clone, or the folder in it that holds the files `part_*.mat`.

    Returns:
        Decisions, participants, transitions, features and points as data frames, with their source and licence.

    Raises:
        ValueError: where the folder holds no recordings; the message says what to clone. Also for a file of another form.

    References:
        The task and its recordings: https://github.com/dimarkov/pybefit, examples/plandepth.

    Example:
        >>> space_adventure("no/such/folder")
        Traceback (most recent call last):
        ...
        ValueError: no/such/folder holds no recordings part_*.mat: clone https://github.com/dimarkov/pybefit and name its folder
    """
    places = [Path(folder), Path(folder) / "data", Path(folder) / "examples" / "plandepth" / "data"]
    files = next((listed for place in places if (listed := sorted(place.glob("part_*.mat"), key=_number))), [])
    if not files:
        raise ValueError(
            f"{folder} holds no recordings part_*.mat: clone https://github.com/dimarkov/pybefit and name its folder"
        )
    recordings = [_recording(file) for file in files]
    starts = dict.fromkeys(start for recording in recordings for start in recording.starts)
    if not starts:
        raise ValueError(f"{files[0].parent} holds recordings without a single decision")
    task = adventure_from(list(starts))
    return RecordedStudy(
        decisions=pd.concat([recording.decisions for recording in recordings], ignore_index=True),
        persons=pd.DataFrame([recording.person for recording in recordings]),
        episodes=pd.concat([recording.episodes for recording in recordings], ignore_index=True),
        **_tables(task),
        source="Recordings: https://github.com/dimarkov/pybefit (examples/plandepth/data)",
        licence="MIT licence, whose notice is the LICENSE file of the repository: keep it with the tables.",
    )


@dataclass(frozen=True)
class _Recording:
    """What one file holds."""

    decisions: pd.DataFrame
    episodes: pd.DataFrame
    person: dict[str, object]
    starts: list[Place]


def _number(file: Path) -> tuple[int, str]:
    """Return the participant's number in a file's name `part_23_….mat`, to sort by."""
    number = file.name.split("_")[1].removesuffix(".mat")
    return (int(number) if number.isdigit() else 0), file.name


def _recording(file: Path) -> _Recording:
    """Read one participant's file."""
    from scipy.io import loadmat  # noqa: PLC0415  nobody else needs it
    from scipy.io.matlab import MatReadError  # noqa: PLC0415

    name = f"p{file.name.split('_')[1].removesuffix('.mat')}"
    try:
        data = cast(dict[str, Any], loadmat(file, simplify_cells=True)["data"])
        travels = np.asarray(data["Conditions"]["notrials"], dtype=np.float64).ravel()
        noise = [str(word) for word in np.ravel(data["Conditions"]["noise"])]
        planets = np.asarray(data["PlanetConf"], dtype=np.float64).reshape(-1, 6)
        states, keys, points = (
            np.asarray(array, dtype=np.float64).reshape(len(planets), -1)
            for array in (data["States"], data["Responses"]["Keys"], data["Points"])
        )
    except (KeyError, IndexError, TypeError, ValueError, NotImplementedError, OSError, MatReadError) as error:
        raise ValueError(f"{file.name} is not a recording of the Space Adventure Task: {error}") from None
    rows: list[tuple[object, ...]] = []
    conditions: list[tuple[object, ...]] = []
    starts = []
    for block, left in enumerate(np.nan_to_num(travels).astype(int).tolist()):
        if noise[block] not in ("low", "high") or np.isnan(states[block, 0]):
            continue  # the game was over
        values = tuple(int(value) - 1 for value in planets[block])
        place = Place(values, noise[block], left, int(states[block, 0]) - 1)
        decided = list(_travels(place, states[block], keys[block]))
        if decided:
            starts.append(place)
            conditions.append((name, block + 1, noise[block], left))
        rows += [(name, block + 1, step, *decision) for step, decision in enumerate(decided)]
    decisions = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    recorded = points[~np.isnan(points)]
    blocks = int(decisions["episode"].nunique())
    person = {
        "expert": name,
        **{key: _somewhere(data, key) for key in ("age", "gender") if _somewhere(data, key) is not None},
        "order": "2 then 3" if travels[0] == 2 else "3 then 2",
        "blocks": blocks,
        "decisions": len(decisions),
        "points": float(recorded[-1]) if recorded.size else np.nan,
        "ended_early": blocks < len(planets),
    }
    episodes = pd.DataFrame(conditions, columns=["expert", "episode", "noise", "travels"])
    return _Recording(decisions, episodes, person, starts)


def _somewhere(data: dict[str, Any], key: str) -> Any:
    """Return the number or word that stands under a name at any depth of a recording; None where there is none."""
    for name, value in data.items():
        if name.lower() == key and np.ndim(value) == 0:
            return value
        if isinstance(value, dict) and (inner := _somewhere(value, key)) is not None:
            return inner
    return None


def _travels(place: Place, states: Any, keys: Any) -> Iterator[tuple[str, str, str | None]]:
    """Yield state, action and next state of each travel of a mini-block, until one was not recorded."""
    for travel in range(place.left):
        if np.isnan(keys[travel]):
            return
        action = ("move", "jump")[int(keys[travel]) - 1]
        if travel + 1 >= len(states) or np.isnan(states[travel + 1]):
            yield str(place), action, None  # the points ran out, and where they landed was not recorded
            return
        after = place.after(int(states[travel + 1]) - 1)
        yield str(place), action, str(after) if after.left else after.ending
        place = after


def _tables(task: SpaceAdventure) -> dict[str, pd.DataFrame]:
    """Return the rules, the features and the points of the states in which there is something to decide."""
    mdp = task.mdp
    live = np.flatnonzero(~mdp.terminal)
    rows = (np.arange(mdp.n_actions)[:, None] * mdp.n_states + live).T.ravel()
    state, action = np.divmod(np.arange(rows.size), mdp.n_actions)
    names = pd.DataFrame({"state": np.array(mdp.state_names)[live[state]], "action": np.array(mdp.action_names)[action]})
    moves = mdp.stacked[rows].tocoo()
    order = np.argsort(moves.coords[0], kind="stable")
    row, after = (axis[order] for axis in moves.coords)
    transitions = names.iloc[row].reset_index(drop=True)
    transitions["next_state"] = np.array(mdp.state_names)[after]
    transitions["probability"] = moves.data[order]
    features = pd.concat([names, pd.DataFrame(task.features[rows].toarray(), columns=list(task.feature_names))], axis=1)
    points = names.assign(points=task.reward.T.ravel()[rows])
    return {"transitions": transitions, "features": features, "points": points}
