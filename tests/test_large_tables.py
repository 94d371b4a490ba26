"""Tables that are counted by the database, and folders of files: the same decisions and the same messages as of loaded tables."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_files import CSV_FILES
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.choice.settings import with_known_reward
from multihorizon.cli import app
from multihorizon.data import counting
from multihorizon.data.counting import CountedFiles
from multihorizon.data.dynamics import unlikely_moves
from multihorizon.data.reading import files_of, scan_files
from multihorizon.driver import build_problem

COLUMNS = ["expert", "episode", "step", "state", "action", "next_state"]
DOMAIN = mh.domains.cliff()


def count(path: Path, cut_off: bool = False, conditions: tuple[str, ...] = ()) -> mh.Demonstrations:
    """The table as one that is too large to be loaded."""
    return CountedFiles(scan_files(str(path), files_of(path, "demonstrations")), cut_off, conditions)


def walks(seed: int = 0, episodes: int = 12) -> pd.DataFrame:
    """Episodes of three experts, shuffled, with labels that are numbers, numbers with zeros, and text."""
    table = mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.soft_experts(), episodes, seed, 15, names=["b", "a", "10"])
    return table.to_frame().sample(frac=1, random_state=seed).reset_index(drop=True)


def require_equal(one: mh.Demonstrations, other: mh.Demonstrations) -> None:
    for labels in ("experts", "states", "actions"):
        assert getattr(one, labels) == getattr(other, labels)
    for column in ("expert", "state", "action", "next_state", "count"):
        np.testing.assert_array_equal(getattr(one.cells, column), getattr(other.cells, column))
    for counts in ("episode_counts", "first_states"):
        np.testing.assert_array_equal(getattr(one, counts), getattr(other, counts))
    for column in ("expert", "first_state", "length"):
        np.testing.assert_array_equal(getattr(one.by_episode, column), getattr(other.by_episode, column))
    assert one.same_decisions(other)


def blank_some(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(next_state=frame["next_state"].where(np.arange(len(frame)) % 3 > 0))


def spelt_twice(frame: pd.DataFrame) -> pd.DataFrame:
    odd = np.arange(len(frame)) % 2 == 1
    return frame.assign(**{c: np.where(odd, frame[c].astype(str) + ".0", frame[c]) for c in ("state", "episode")})


TABLES = {
    "plain": lambda frame: frame,
    "next states blank inside episodes": blank_some,
    "no next states": lambda frame: frame.drop(columns="next_state"),
    "3 and 3.0": spelt_twice,
    "labels with blanks and quotation marks": lambda frame: frame.assign(
        state=' "' + frame["state"] + ",x", next_state=' "' + frame["next_state"] + ",x"
    ),
    "names of episodes as text": lambda frame: frame.assign(episode="Tag " + frame["episode"] + "ü"),
    "steps that begin at -3": lambda frame: frame.assign(step=frame["step"] - 3),
    "another column at the end": lambda frame: frame.assign(note="x"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TABLES)
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.bz2", "parquet"])
def test_a_counted_table_holds_what_a_loaded_one_does(case, ending, tmp_path):
    frame = TABLES[case](walks())
    path = tmp_path / f"d.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    loaded = mh.Demonstrations.from_files(path)
    table = count(path)
    require_equal(table, loaded)
    times = np.random.default_rng(1).integers(0, 3, loaded.by_episode.expert.size)
    for _ in range(counting.REREADINGS + 1):
        np.testing.assert_array_equal(table.count_episodes(times), loaded.count_episodes(times))
    wanted = np.arange(0, loaded.moves.count.size, 3)
    assert table.decisions_of(wanted) == loaded.decisions_of(wanted)


def test_what_is_kept_of_a_counted_table_does_not_grow_with_its_episodes(tmp_path):
    """Ten thousand episodes of one decision each: one cell for each, and no entry per episode until it is asked for."""
    number = np.arange(10_000)
    frame = pd.DataFrame(
        {"expert": "a", "episode": number[::-1], "step": 0, "state": number % 3, "action": "go", "next_state": 3}
    )
    frame.to_parquet(tmp_path / "d.parquet")
    table = count(tmp_path / "d.parquet")
    assert table.cells.count.tolist() == [3334, 3333, 3333]
    assert table.episode_counts.tolist() == [10_000]
    assert table.first_states.tolist() == [3334, 3333, 3333, 0]
    mdp = mh.estimate_mdp(table)
    assert mdp.initial == pytest.approx([0.3334, 0.3333, 0.3333, 0.0])
    assert "by_episode" not in vars(table)
    np.testing.assert_array_equal(table.by_episode.first_state, (9999 - number) % 3)
    assert (table.by_episode.length == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", CSV_FILES)
def test_messages_are_the_same_whether_counted_or_loaded(case, tmp_path):
    content, _ = CSV_FILES[case]
    (tmp_path / "d.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as loaded:
        mh.Demonstrations.from_files(tmp_path / "d.csv")
    with pytest.raises(ValueError) as found:
        count(tmp_path / "d.csv")
    assert str(found.value) == str(loaded.value)


def outcome(path: Path, read) -> mh.Demonstrations | str:
    try:
        return read(path)
    except ValueError as error:
        return str(error)


@pytest.mark.slow
def test_every_change_of_a_cell_is_noticed_or_harmless(tmp_path):
    """Both ways agree on a table with one cell taken from another row: the same sentence, or the same decisions."""
    rng, frame = np.random.default_rng(0), walks(episodes=3)
    refused = 0
    for _ in range(40):
        column, row, other = rng.choice(COLUMNS), *rng.choice(len(frame), 2, replace=False)
        changed = frame.copy()
        changed.loc[row, column] = frame.loc[other, column]
        changed.to_csv(tmp_path / "d.csv", index=False)
        readers = (mh.Demonstrations.from_files, count)
        loaded, found = (outcome(tmp_path / "d.csv", read) for read in readers)
        if isinstance(loaded, str):
            refused += 1
            assert found == loaded
        else:
            require_equal(found, loaded)
    assert refused > 15


def test_next_states_that_change_places_are_noticed(tmp_path):
    """The same states, steps and next states, in another pairing."""
    frame = pd.DataFrame([("a", 1, 0, "x", "go", "y"), ("a", 1, 1, "y", "go", "x"), ("a", 1, 2, "x", "go", "z")], columns=COLUMNS)
    frame.to_csv(tmp_path / "good.csv", index=False)
    assert len(count(tmp_path / "good.csv")) == 3
    frame.assign(next_state=["x", "y", "z"]).to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(ValueError, match=r"bad\.csv, line 2 \(expert a, episode 1, step 0\): next_state is 'x', but the next"):
        count(tmp_path / "bad.csv")


@pytest.mark.parametrize(
    ("steps", "said"), [([0, 0, 2, 3], "each step must occur once"), ([0, 1, 1, 4], "once"), ([0, 2, 2, 4], "once")]
)
def test_a_step_twice_and_another_missing_do_not_cancel(steps, said, tmp_path):
    frame = pd.DataFrame({"expert": "a", "episode": 1, "step": steps, "state": "x", "action": "go"})
    for columns in ({}, {"next_state": "x"}):
        frame.assign(**columns).to_csv(tmp_path / "d.csv", index=False)
        with pytest.raises(ValueError, match=said):
            count(tmp_path / "d.csv")


def test_numbers_of_other_types_are_the_same_states(tmp_path):
    """Whole states and next states that became floats because one is missing, as pandas writes them."""
    frame = walks().astype({"state": int, "next_state": int, "step": int})
    frame["next_state"] = frame["next_state"].where(frame["next_state"] != 11)
    frame.to_parquet(tmp_path / "d.parquet")
    require_equal(count(tmp_path / "d.parquet"), mh.Demonstrations.from_files(tmp_path / "d.parquet"))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("large", [False, True])
def test_a_folder_is_one_table(ending, large, tmp_path):
    frame = walks()
    folder = tmp_path / "all"
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        write = frame.iloc[part].to_parquet if ending == "parquet" else frame.iloc[part].to_csv
        write(folder / f"part-{number}.{ending}", index=False)
    (folder / "_SUCCESS").write_text("")
    table = count(folder) if large else mh.Demonstrations.from_files(folder)
    require_equal(table, mh.Demonstrations.from_frame(frame))


@pytest.mark.parametrize("large", [False, True])
def test_messages_about_a_folder_name_the_file_and_the_line(large, tmp_path):
    frame = walks(episodes=2)
    for number in range(2):
        frame[number::2].to_csv(tmp_path / f"{number}.csv", index=False)
    text = (tmp_path / "1.csv").read_text().splitlines()
    (tmp_path / "1.csv").write_text("\n".join([*text[:4], "a,,0,1,2,3", *text[4:]]))
    with pytest.raises(ValueError, match=r", 1\.csv, line 5: column episode must not be empty"):
        count(tmp_path) if large else mh.Demonstrations.from_files(tmp_path)


def test_folders_that_are_no_table(tmp_path):
    with pytest.raises(ValueError, match="a folder without any"):
        mh.Demonstrations.from_files(tmp_path)
    walks().to_csv(tmp_path / "a.csv", index=False)
    walks().drop(columns="next_state").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match=r"b\.csv must begin like a\.csv, with the columns expert"):
        mh.Demonstrations.from_files(tmp_path)
    walks().to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="of one kind"):
        mh.Demonstrations.from_files(tmp_path)
    (tmp_path / "b.parquet").unlink()
    result = CliRunner().invoke(app, ["fit", str(tmp_path), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--out must be another folder than the one that is read" in result.stderr


def test_rows_of_a_table_that_is_too_large_are_not_loaded(tmp_path):
    walks().to_csv(tmp_path / "d.csv", index=False)
    path = tmp_path / "d.csv"
    table = CountedFiles(scan_files(str(path), [path]), most_rows=10)
    with pytest.raises(ValueError, match=r"must have at most 10 decisions to be loaded one by one, got"):
        _ = table.state
    assert table.counts(DOMAIN.mdp).sum() == len(table)


@pytest.mark.parametrize("large", [False, True])
def test_tables_of_files_survive_pickling(large, tmp_path):
    """Other processes get them this way, with the places of their rows."""
    walks().to_csv(tmp_path / "d.csv", index=False)
    table = count(tmp_path / "d.csv") if large else mh.Demonstrations.from_files(tmp_path / "d.csv")
    back = pickle.loads(pickle.dumps(table))
    require_equal(back, table)
    assert back.decisions_of(np.array([0])) == table.decisions_of(np.array([0]))


@pytest.mark.slow
def test_a_fit_does_not_depend_on_whether_the_table_was_loaded(tmp_path):
    frame = mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.soft_experts(), 200, names=["x", "y", "z"]).to_frame()
    answers = []
    for size in (1, 16_000_000 // len(frame)):
        folder = tmp_path / str(size)
        folder.mkdir()
        frame.assign(note="x" * size).to_csv(folder / "d.csv", index=False)
        assert isinstance(mh.Demonstrations.from_files(folder / "d.csv"), CountedFiles) == (size > 1)
        result = CliRunner().invoke(app, ["fit", str(folder / "d.csv"), "--deviations", "0", "--out", str(folder)])
        assert result.exit_code == 0, result.output
        answer = json.loads((folder / "result.json").read_text())
        answers.append({key: value for key, value in answer.items() if "seconds" not in key})
    assert answers[0] == answers[1]


def test_counted_tables_may_be_cut_off(tmp_path):
    """The same decisions, with and without the column next_state, loaded and counted."""
    frame = walks()
    last = frame.groupby(["expert", "episode"])["step"].transform("max") == frame["step"]
    for number, table in enumerate([frame.assign(next_state=frame["next_state"].mask(last)), frame.drop(columns="next_state")]):
        table.to_csv(tmp_path / f"{number}.csv", index=False)
        loaded = mh.Demonstrations.from_files(tmp_path / f"{number}.csv", cut_off=True)
        large = count(tmp_path / f"{number}.csv", cut_off=True)
        require_equal(large, loaded)
        assert pickle.loads(pickle.dumps(large)).cut_off
        assert (loaded.next_state < 0).sum() == last.sum()
        mdps = [mh.estimate_mdp(one) for one in (loaded, large)]
        np.testing.assert_array_equal(*(mdp.to_array() for mdp in mdps))
        np.testing.assert_array_equal(*(one.counts(mdp) for one, mdp in zip((loaded, large), mdps, strict=True)))


def test_counted_moves_are_tested_against_the_transitions(tmp_path):
    walks(episodes=30).to_csv(tmp_path / "d.csv", index=False)
    swapped = mh.MDP(DOMAIN.mdp.to_array()[[1, 0, 2, 3]], terminal=DOMAIN.mdp.terminal, action_names=DOMAIN.mdp.action_names)
    said = []
    for table in (mh.Demonstrations.from_files(tmp_path / "d.csv"), count(tmp_path / "d.csv")):
        with pytest.raises(ValueError) as caught:
            mh.analyse([table], [swapped])
        said.append(str(caught.value))
        assert unlikely_moves(table, DOMAIN.mdp).empty
    assert said[0] == said[1]


def people(mdp: mh.MDP, seed: int, names: list[str]) -> pd.DataFrame:
    """Shuffled decisions of people with random policies, each of whom plays a few episodes."""
    rng = np.random.default_rng(seed)
    policies = rng.dirichlet(np.ones(mdp.n_actions), (len(names), mdp.n_states))
    table = mh.Demonstrations.simulate(mdp, list(policies), 4, seed, 12, names=names)
    return table.to_frame().sample(frac=1, random_state=seed)


def as_arrays(crowd: mh.Problem) -> list[object]:
    """All that a crowd holds."""
    found: list[object] = [crowd.names, crowd.parameter_names, len(crowd.tasks)]
    for task in crowd.tasks:
        found += [task.counts.toarray(), task.counts.nnz, task.mdp.stacked.toarray(), task.mdp.available]
        found += [None if part is None else part.toarray() for part in (task.features, task.arrival)]
        found.append(task.known_reward)
    return found


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("reward", ["states", "features"])
def test_sparse_counts_are_those_of_the_experts_one_by_one(tasks, given, reward, tmp_path):
    """Loaded and counted tables, one task or two with other people in each: the same arrays, names, order and remarks."""
    mdps = [DOMAIN.mdp, mh.domains.cliff(ending="absorbing").mdp][:tasks] if given else None
    names = [["b", "B", "10", "9", "a"], ["zoe", "a", "10", "yan"]][:tasks]
    frames = [people(DOMAIN.mdp, i, who) for i, who in enumerate(names)]
    tables = []
    for i, frame in enumerate(frames):
        frame.to_parquet(tmp_path / f"{i}.parquet")
        tables.append(count(tmp_path / f"{i}.parquet") if i == 0 else mh.Demonstrations.from_frame(frame))

    def features(mdp: mh.MDP) -> tuple[object, list[str]]:
        return np.random.default_rng(3).normal(size=(mdp.n_actions * mdp.n_states, 2)), ["x", "y"]

    asked = tables, mdps, None if reward == "states" else features
    crowd, remarks = build_problem(*asked)
    problem = crowd.with_experts(crowd.experts)
    assert any("'B' and 'b'" in remark for remark in remarks)
    for one, other in zip(as_arrays(problem), as_arrays(crowd), strict=True):
        np.testing.assert_array_equal(one, other)
    assert crowd.names == problem.names
    if tasks == 1:  # a reward that is known belongs to one task, for its states or for its decisions
        mdp = crowd.mdp
        for size in (mdp.n_states, mdp.n_states * mdp.n_actions):
            known = np.random.default_rng(4).normal(size=size)
            (paid, full), (same_paid, same_full) = with_known_reward(problem, known), with_known_reward(crowd, known)
            np.testing.assert_array_equal(full, same_full)
            for one, other in zip(as_arrays(paid), as_arrays(same_paid), strict=True):
                np.testing.assert_array_equal(one, other)


REFUSED = {
    "state 'five' must be one of the 12 states": lambda frame: frame.replace(
        {"state": {"5": "five"}, "next_state": {"5": "five"}}
    ),
    "got 8 impossible moves: from 11": lambda frame: frame.assign(
        state=frame["state"].replace("5", "11"), next_state=frame["next_state"].replace("5", "11")
    ),
    "the moves of the table contradict the transitions": lambda frame: frame.assign(action="up"),
    "action 'jump' must be one of the 4 actions": lambda frame: frame.assign(action="jump"),
    "expert d must have at least one decision, got none": lambda frame: frame.drop(columns="next_state"),
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_table_that_does_not_fit_the_task_is_refused_in_one_sentence(said, tmp_path):
    frame = REFUSED[said](people(DOMAIN.mdp, 0, ["a", "b", "c"]))
    cut_off = "next_state" not in frame
    if cut_off:  # one person made a single decision that nobody else made, and nothing says where it led
        frame = pd.concat([frame, pd.DataFrame([("d", 0, 0, "lost", "up")], columns=COLUMNS[:5])])
    frame.to_csv(tmp_path / "d.csv", index=False)
    table = count(tmp_path / "d.csv", cut_off)
    asked = [table], None if cut_off else [DOMAIN.mdp]
    with pytest.raises(ValueError, match=re.escape(said)):
        build_problem(*asked)


def noisy(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with conditions that are text, numbers spelt in two ways, truth values, and partly missing."""
    number, odd = frame["episode"].astype(str).str.extract(r"(\d+)")[0].astype(int), np.arange(len(frame)) % 2
    return frame.assign(
        noise=np.where(number % 2, "high", "low"),
        minutes=(number / 4).astype(str) + np.where(odd, "0", ""),
        practice=np.where(number < 2, np.where(odd, "TRUE", "true"), "False"),
        block=(number // 3).astype(str).where(number % 4 > 0, np.where(odd, "NA", "")),
        nothing=None,
    )


CONDITIONS = ("noise", "minutes", "practice", "block", "nothing")


@pytest.mark.slow
@pytest.mark.parametrize("case", TABLES)
@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_counted_conditions_are_those_of_loaded_tables(case, kind, tmp_path):
    frame, path = noisy(TABLES[case](walks())), tmp_path / f"d.{kind}"
    if kind == "folder":
        path.mkdir()
        for i, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
            frame.iloc[part].to_csv(path / f"{i}.csv", index=False)
    else:
        getattr(frame, f"to_{kind}")(path, index=False)
    loaded, found = mh.Demonstrations.from_files(path, True, CONDITIONS), count(path, True, CONDITIONS)
    pd.testing.assert_frame_equal(found.conditions, loaded.conditions)
    assert found.conditions["minutes"].dtype == float
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(found)).conditions, loaded.conditions)
    for mdp in (DOMAIN.mdp, mh.estimate_mdp(loaded)):
        if case != "labels with blanks and quotation marks" or mdp is not DOMAIN.mdp:
            require_same_cells(mh.Problem(mdp, found), mh.Problem(mdp, loaded))
    about = loaded.conditions[["noise", "block"]].assign(
        expert=np.array(loaded.experts)[loaded.by_episode.expert], episode=loaded.episode_labels
    )
    plain, counted_plain = mh.Demonstrations.from_files(path, True), count(path, True)
    tables = plain, counted_plain, count(path, True, ("minutes",))
    path.rename(away := tmp_path / "away")  # the files are not counted again
    others = [table.under(about) for table in tables]
    away.rename(path)
    pd.testing.assert_frame_equal(others[0].conditions, others[1].conditions)
    pd.testing.assert_frame_equal(others[0].conditions, others[2].conditions[["noise", "block"]])
    pd.testing.assert_frame_equal(others[1].select(slice(None)).conditions, others[0].conditions)
    assert counted_plain.conditions is None
    nowhere = np.full(len(about), -1)
    assert found.choices_by(mdp, nowhere, 2).nnz == loaded.choices_by(mdp, nowhere, 2).nnz == 0


def require_same_cells(one: mh.Problem, other: mh.Problem) -> None:
    """The two crowds have equal cells."""
    np.testing.assert_array_equal(one.cells.owner, other.cells.owner)
    pd.testing.assert_frame_equal(one.conditions, other.conditions)
    for mine, yours in zip(one.tasks, other.tasks, strict=True):
        assert (mine.counts != yours.counts).nnz == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("column", "value"), [("noise", "none"), ("minutes", "2.75"), ("noise", None)])
def test_a_counted_condition_that_varies_is_refused_in_the_same_words(kind, column, value, tmp_path):
    frame, path = noisy(walks()), tmp_path / f"d.{kind}"
    frame.loc[frame.index[40], column] = value
    getattr(frame, f"to_{kind}")(path, index=False)
    with pytest.raises(ValueError, match="must be the same in a whole episode") as loaded:
        mh.Demonstrations.from_files(path, conditions=CONDITIONS)
    with pytest.raises(ValueError, match="must be the same in a whole episode") as found:
        count(path, conditions=CONDITIONS)
    assert str(found.value) == str(loaded.value)
    with pytest.raises(ValueError, match="must have the column noize to be a condition"):
        count(path, conditions=("noize",))


@pytest.mark.slow
def test_a_hundred_thousand_rows_have_the_same_cells_counted_as_loaded(tmp_path):
    table = mh.Demonstrations.simulate(DOMAIN.mdp, [DOMAIN.soft_experts()[i % 3] for i in range(50)], 400, 1, 15)
    assert len(table) > 100_000
    number = np.tile(np.arange(400), 50)
    table = table.with_conditions(pd.DataFrame({"noise": np.where(number % 2, "high", "low"), "block": number // 4}))
    frame = table.to_frame().sample(frac=1, random_state=0)
    frame.to_parquet(tmp_path / "d.parquet", index=False)
    found = count(tmp_path / "d.parquet", conditions=("noise", "block"))
    loaded = mh.Demonstrations.from_frame(frame, conditions=("noise", "block"))
    counted = mh.Problem(DOMAIN.mdp, found)
    require_same_cells(counted, mh.Problem(DOMAIN.mdp, loaded))
    require_same_cells(counted, counted.with_experts(counted.experts))
    assert counted.cells.owner.size == 50 * 200
