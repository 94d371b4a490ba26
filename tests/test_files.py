"""Files that are damaged, foreign or hostile: one sentence that names the file and the line, and no crash."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from fitting import small_files
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.checks import positions
from multihorizon.cli import app
from multihorizon.cli.console import PlainConsole, plain_errors
from multihorizon.data.demonstrations import read_tables
from multihorizon.data.dynamics import require_agreement
from multihorizon.data.reading import InputTable
from multihorizon.data.side_tables import read_features, read_transitions
from multihorizon.files import check_output, visible, write_all
from multihorizon.solution import Trace

HEADER = "expert,episode,step,state,action,next_state"
ROWS = ["ann,1,0,home,walk,road", "ann,1,1,road,ride,town", "bob,1,0,home,ride,home"]
GOOD = "\n".join([HEADER, *ROWS]) + "\n"


def mdp() -> mh.MDP:
    transitions = np.array([[[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 0]]] * 2)
    return mh.MDP(transitions, terminal=[2], state_names=["home", "road", "town"], action_names=["walk", "ride"])


def arrays(tmp_path: Path) -> dict[str, np.ndarray]:
    mdp().to_npz(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        return dict(file)


DAMAGED_MATRICES = {
    "indptr decreases": {"indptr": [0, 2, 1, 4, 6, 8, 8]},
    "indptr beyond the data": {"indptr": [0, 2, 4, 4, 6, 8, 10**9]},
    "indptr negative": {"indptr": [0, -5, 4, 4, 6, 8, 8]},
    "indptr too short": {"indptr": [0, 8]},
    "indices outside": {"indices": [0, 1, 1, 2, 0, 1, 1, 10**6]},
    "indices negative": {"indices": [0, 1, 1, 2, 0, 1, 1, -1]},
    "indices are text": {"indices": list("abcdefgh")},
    "fewer data than indices": {"data": [0.5, 0.5]},
    "no states": {"available": np.zeros((0, 5), dtype=bool)},
    "available has one axis": {"available": [True]},
    "names are numbers": {"state_names": [1, 2, 3]},
    "data not finite": {"data": [np.nan] * 8},
    "grid of three axes": {"grid_shape": [1, 3, 1]},
    "grid below zero": {"grid_shape": [-1, -3]},
}


@pytest.mark.parametrize("case", DAMAGED_MATRICES)
def test_damaged_matrices_are_refused_before_use(case, tmp_path):
    content = arrays(tmp_path) | {name: np.array(value) for name, value in DAMAGED_MATRICES[case].items()}
    np.savez(tmp_path / "bad.npz", **content)
    with pytest.raises(ValueError, match=r"bad\.npz"):
        mh.MDP.from_npz(tmp_path / "bad.npz")


class Bomb:
    """What writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["data", "state_names", "sample_sizes", "more"])
def test_an_archive_cannot_carry_code(name, tmp_path):
    ran = tmp_path / "ran"
    np.savez(tmp_path / "objects.npz", **arrays(tmp_path) | {name: np.array([Bomb(ran)] * 8, dtype=object)})
    np.savez(tmp_path / "fields.npz", **arrays(tmp_path) | {name: np.array([(1.0, Bomb(ran))] * 8, dtype="f8,O")})
    with zipfile.ZipFile(tmp_path / "header.npz", "w") as archive:
        archive.writestr(f"{name}.npy", npy(f"(__import__('pathlib').Path('{ran}').touch(),)"))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb(ran)))
    for kind in ("objects", "fields", "header", "pickle"):
        with pytest.raises(ValueError, match=rf"{kind}\.npz is not a saved MDP"):
            mh.MDP.from_npz(tmp_path / f"{kind}.npz")
    assert not ran.exists()


def test_every_truncation_of_an_archive_is_refused(tmp_path):
    arrays(tmp_path)
    whole = (tmp_path / "good.npz").read_bytes()
    for size in range(0, len(whole) - 1, 37):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.npz is not a saved MDP"):
            mh.MDP.from_npz(tmp_path / "cut.npz")


def test_changed_bytes_never_crash(tmp_path):
    arrays(tmp_path)
    whole = bytearray((tmp_path / "good.npz").read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.choice(len(whole), 300, replace=False):
        changed = whole.copy()
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "flip.npz").write_bytes(changed)
        try:
            back = mh.MDP.from_npz(tmp_path / "flip.npz")
        except ValueError:
            refused += 1
        else:
            assert back.n_states == 3
    assert refused > 50


def npy(shape: str, descr: str = "<f8", content: bytes = b"") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


@pytest.mark.parametrize(
    "member",
    [
        npy("(10000000000000,)"),
        npy("(10000000000000,)", content=b"\0" * 800),
        npy("(-1,)"),
        npy("(2,)", "|O", b"\x80\x04]."),
        npy("(1,)", "not a type", b"\0" * 8),
        b"\x93NUMPY",
        b"",
    ],
)
def test_headers_that_claim_what_is_not_there(member, tmp_path):
    content = arrays(tmp_path)
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        for name, array in content.items():
            file = io.BytesIO()
            np.save(file, array)
            archive.writestr(f"{name}.npy", member if name == "data" else file.getvalue())
    with pytest.raises(ValueError, match="not a saved MDP: it is damaged"):
        mh.MDP.from_npz(tmp_path / "bad.npz")


def test_estimated_transitions_survive_a_file(tmp_path):
    (tmp_path / "d.csv").write_text(GOOD)
    estimated = mh.estimate_mdp(mh.Demonstrations.from_csv(tmp_path / "d.csv"))
    estimated.to_npz(tmp_path / "m.npz")
    assert mh.MDP.from_npz(tmp_path / "m.npz").sample_sizes == pytest.approx(estimated.sample_sizes)


CSV_FILES = {
    "semicolons": (GOOD.replace(",", ";"), "separated by semicolons: save it with commas"),
    "tabs": (GOOD.replace(",", "\t"), "separated by tabs"),
    "bars": (GOOD.replace(",", "|"), "separated by vertical bars"),
    "spreadsheet hint": ("sep=;\n" + GOOD, "line 1: got 'sep=;' .*: delete this line"),
    "Latin-1": (GOOD.replace("bob", "Zoé").encode("latin-1"), "line 4: got the byte 0xe9.*save it as UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "saved as UTF-16 or UTF-32: save it as UTF-8"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-le"), "a file that is no text"),
    "Excel": (b"PK\x03\x04 xl/workbook.xml", "an Excel workbook or a zip archive: .* save it as CSV"),
    "web page": ("<!DOCTYPE html><html>", "a web page"),
    "JSON": ('{"expert": []}', "a JSON document"),
    "empty": ("", "got an empty file"),
    "blank": ("\n  \n", "got an empty file"),
    "column twice": (GOOD.replace("action", "state", 1), "line 1: each column must be named once, got state twice"),
    "comma at every end": (GOOD.replace("\n", ",\n").replace("next_state,", "next_state"), "line 2: got 7 cells under 6"),
    "comma at one end": (GOOD.replace("town", "town,"), "line 3: got 7 cells under 6 columns: is there a comma"),
    "open quotation mark in the header": ('"' + GOOD, "line 1: a quotation mark is opened here and never closed"),
    "open quotation mark": (GOOD.replace("bob", '"bob'), "line 4: a quotation mark is opened here and never closed"),
    "missing state": (GOOD.replace("bob,1,0,home", "bob,1,0,"), "line 4: column state must not be empty"),
    "after blank lines": ("\n" + GOOD.replace("bob,1,0,home", "\n\nbob,1,0,"), "line 7: column state must not be empty"),
    "after a line break in a name": (
        GOOD.replace("home,walk,road", '"ho\nme",walk,road').replace("bob,1,0,home", "bob,1,0,"),
        "line 5: column state must not be empty",
    ),
    "a cell of the header never closed": ('"' + "x" * 200_000 + GOOD, "a quotation mark must be missing"),
    "a last line that is far too long": (
        GOOD + "ann,2,0,home,walk," + "x" * (17 << 20),
        "line 5: the line must be shorter than 8 MB",
    ),
    "step": (GOOD.replace("bob,1,0", "bob,1,first"), "line 4: column step must be a whole number, got 'first'"),
    "empty step": (GOOD.replace("bob,1,0", "bob,1,"), "line 4: column step must be a whole number, got an empty cell"),
    "huge step": (GOOD.replace("bob,1,0", "bob,1,1e300"), "line 4: column step must be a whole number of at most 9e.15 in size"),
    "step twice": (GOOD + ROWS[0] + "\n", "each step must occur once, got it in line 2 and line 5"),
    "gap": (GOOD.replace("ann,1,1", "ann,1,2"), "line 2 .* must be followed by step 1, got step 2"),
    "other next state": (GOOD.replace("road\n", "town\n"), "line 2 .*next_state is 'town', but the next step is in 'road'"),
    "no column": (GOOD.replace("action", "Action"), "none named action but expert, episode, step, state, Action"),
}


@pytest.mark.parametrize("case", CSV_FILES)
def test_csv_files_that_are_wrong_say_where_and_what_to_do(case, tmp_path):
    content, said = CSV_FILES[case]
    (tmp_path / "d.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"d\.csv.*{said}") as caught:
        mh.Demonstrations.from_files(tmp_path / "d.csv")
    assert "\n" not in str(caught.value).replace("ho\nme", "")
    assert "np." not in str(caught.value)


def test_labels_that_do_not_match_name_the_line(tmp_path):
    (tmp_path / "d.csv").write_text(GOOD.replace("bob,1,0,home", "bob,1,0,moon"))
    with pytest.raises(ValueError, match=r"d\.csv, line 4 \(expert bob, .*\): state 'moon' must be one of the 3 states"):
        mh.Problem(mdp(), mh.Demonstrations.from_files(tmp_path / "d.csv"))


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zip"])
def test_damaged_compressed_files(ending, tmp_path):
    path = tmp_path / f"d.csv.{ending}"
    pd.DataFrame([row.split(",") for row in ROWS] * 200, columns=HEADER.split(",")).to_csv(path, index=False)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive at all", whole[:40] + b"\0\1\2\3" * 5 + whole[60:], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"d\.csv\.{ending} (is damaged|must be a CSV table)"):
            mh.Demonstrations.from_files(path)


def test_a_small_file_that_unpacks_without_end_is_refused_at_its_first_line(tmp_path):
    """Nothing is read after the first block that holds no end of a line."""
    with gzip.open(tmp_path / "d.csv.gz", "wb") as file:
        for _ in range(20):
            file.write(b"a" * (1 << 20))
    damaged = (tmp_path / "d.csv.gz").read_bytes()[:-8]  # reading on would find the end missing
    (tmp_path / "d.csv.gz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"d\.csv\.gz, line 1: the line must be shorter than"):
        mh.Demonstrations.from_files(tmp_path / "d.csv.gz")


def test_only_the_columns_that_are_needed_are_read(tmp_path, monkeypatch):
    seen = []
    others = {f"other {i}": range(3) for i in range(30)}
    table = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(","))
    table.assign(x=[0.0, 1.0, 0.5], **others).to_csv(tmp_path / "d.csv", index=False)
    table.assign(x=[0.0, 1.0, 0.5], **others).to_csv(tmp_path / "d.csv.bz2", index=False)
    monkeypatch.setattr("multihorizon.data.reading.InputTable", lambda *a, **o: seen.append(InputTable(*a, **o)) or seen[-1])
    for name in ("d.csv", "d.csv.bz2"):
        assert mh.Demonstrations.from_files(tmp_path / name).states == ("home", "road", "town")
        assert list(seen.pop().frame.columns) == HEADER.split(",")
        mh.Steps.from_file(tmp_path / name, ["x"])
        assert list(seen.pop().frame.columns) == ["expert", "episode", "step", "action", "x"]
    with pytest.raises(ValueError, match="got none named y but expert, episode, step, state"):
        mh.Steps.from_file(tmp_path / "d.csv", ["y"])


def test_compressed_files_are_read(tmp_path):
    (tmp_path / "d.csv").write_text(GOOD)
    with gzip.open(tmp_path / "e.csv.gz", "wt") as file:
        file.write("\ufeff" + GOOD.replace("\n", "\r\n"))
    assert mh.Demonstrations.from_files(tmp_path / "e.csv.gz").same_decisions(mh.Demonstrations.from_files(tmp_path / "d.csv"))


def test_nested_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(",")).astype({"step": int})
    frame.assign(state=[["home"], ["road"], ["home"]]).to_parquet(tmp_path / "list.parquet")
    frame.assign(state=[{"x": 1}] * 3).to_parquet(tmp_path / "nested.parquet")
    frame.assign(step=pd.Timestamp("2026-01-01")).to_parquet(tmp_path / "dates.parquet")
    frame.assign(state=[b"home", b"road", b"home"]).to_parquet(tmp_path / "bytes.parquet")
    expected = {
        "list": "state must hold text or numbers, got lists",
        "nested": "state must hold text or numbers, got lists or other nested",
        "dates": "step must be a whole",
        "bytes": "state must hold text or numbers, got bytes: write it as text",
    }
    for name, said in expected.items():
        with pytest.raises(ValueError, match=rf"{name}\.parquet.* column {said}"):
            mh.Demonstrations.from_files(tmp_path / f"{name}.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not parquet PAR1")
    with pytest.raises(ValueError, match=r"broken\.parquet is damaged or no Parquet file"):
        mh.Demonstrations.from_files(tmp_path / "broken.parquet")


def test_the_same_table_twice_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "b.csv").write_text("\n".join([HEADER, *reversed(ROWS)]))
    for other in ("a.csv", "b.csv"):
        with pytest.raises(ValueError, match=rf"{other} holds the same decisions as .*a\.csv"):
            read_tables([tmp_path / "a.csv", tmp_path / other])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("home,walk,road,0.5\nhome,walk,town,0.4", "line 2: the probabilities of all moves from home by walk must sum to 1"),
        (
            "home,walk,road,1\nhome,walk,road,0",
            "line 3: .* one row for the move from home by walk to road, got another in line 2",
        ),
        ("home,walk,road,1.5\nhome,walk,town,-0.5", "line 2: column probability must be from 0 to 1, got 1.5"),
        ("home,walk,road,nan", "line 2: column probability must be a number"),
        ("home,walk,road,", "line 2: column probability must be a number, got an empty cell"),
    ],
)
def test_transitions_name_the_line(rows, said, tmp_path):
    (tmp_path / "t.csv").write_text(f"state,action,next_state,probability\n{rows}\n")
    with pytest.raises(ValueError, match=rf"t\.csv, {said}"):
        read_transitions(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("home,1\nroad,2\nroad,3\ntown,4", "line 4: there must be one row for state road, got another"),
        ("home,1\nroad,2", "must have one row for state town, got none"),
        ("Home,1\nroad,2\ntown,3", "line 2: state 'Home' must be one of the 3 states .*Did you mean 'home'"),
        ("home,one\nroad,2\ntown,3", "line 2: column pay must be a number, got 'one'"),
    ],
)
def test_features_name_the_line(rows, said, tmp_path):
    (tmp_path / "f.csv").write_text(f"state,pay\n{rows}\n")
    with pytest.raises(ValueError, match=rf"f\.csv(,| must) ?{said.removeprefix('must ')}"):
        read_features(tmp_path / "f.csv", mdp())


TAMPERED = {
    "discounts outside": {"discounts": [5, -1, 2]},
    "one discount too few": {"discounts": [0.5, 0.5]},
    "discounts are text": {"discounts": ["a", "b", "c"]},
    "discounts are no list": {"discounts": 0.5},
    "reward nested": {"reward": [[1.0]]},
    "status unknown": {"status": "splendid"},
    "temperature negative": {"temperature": [-1, 1, 1]},
    "errors negative": {"standard_errors": [-1, 1, 1]},
    "trace of other lengths": {"trace": {"discounts": [[0, 0, 0]], "values": [1, 2], "seconds": [1]}},
    "trace is a number": {"trace": 5},
    "experts are numbers": {"experts": [1, 2, 3]},
    "experts missing": {"experts": None},
    "another entry": {"more": 1},
    "intervals are a list": {"confidence_intervals": [1]},
}


@pytest.mark.parametrize("case", TAMPERED)
def test_tampered_solutions_are_refused(case, tmp_path):
    domain = mh.domains.cliff()
    mh.solve(mh.Problem(domain.mdp, domain.soft_experts()), mh.ClosedForm()).to_json(tmp_path / "s.json")
    content = json.loads((tmp_path / "s.json").read_text())
    (tmp_path / "s.json").write_text(json.dumps(content | TAMPERED[case]))
    with pytest.raises(ValueError, match=r"s\.json is not a saved solution"):
        mh.Solution.from_json(tmp_path / "s.json")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"s"', "\x00", "[" * 100_000])
def test_json_that_is_no_solution(text, tmp_path):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError, match=r"s\.json is not a saved solution"):
        mh.Solution.from_json(tmp_path / "s.json")


def test_a_trace_with_an_infeasible_point_survives(tmp_path):
    domain = mh.domains.cliff()
    trace = Trace(np.zeros((2, 3)), np.array([-np.inf, 1.5]), np.array([0.1, 0.2]))
    mh.Solution("s", mh.Status.OPTIMAL, "", ("a", "b", "c"), np.zeros(3), domain.reward, 1.5, 0.0, trace=trace).to_json(
        tmp_path / "s.json"
    )
    assert mh.Solution.from_json(tmp_path / "s.json").trace.values.tolist() == [-np.inf, 1.5]


def test_output_is_checked_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "out" / "result.json").mkdir(parents=True)
    cases = {
        tmp_path / "file": "must be a directory",
        tmp_path / "file" / "below": "inside the file",
        Path("/proc/none"): "where files can be written",
        tmp_path / "out": "a directory of this name",
    }
    for place, said in cases.items():
        with pytest.raises(ValueError, match=said):
            check_output(place, ["result.json"], [])
    check_output(tmp_path / "new" / "deep", ["result.json"], [])
    assert not (tmp_path / "new").exists()


def test_paths_are_followed_as_a_shell_does(tmp_path, monkeypatch):
    """`--out=~/x` and `--out a/../b` reach the program as they were typed."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    (home / "d.csv").write_text(GOOD)
    for arguments in (["--out=~/x", "--write=~/mended.csv"], ["--out", "nn/../mm"]):
        result = CliRunner().invoke(app, ["check", "~/d.csv", *arguments])
        assert result.exit_code == 0, result.output
    assert sorted(path.name for path in home.iterdir()) == ["d.csv", "mended.csv", "x"]
    assert [path.name for path in here.iterdir()] == ["mm"]
    said = CliRunner().invoke(app, ["check", "~/d.csv", "--out=~nobody-at-all/x"]).output
    assert "is the home of nobody" in " ".join(said.replace("│", " ").split())
    mdp().to_npz("~/m.npz")
    assert mh.MDP.from_npz("~/m.npz").n_states == 3
    assert len(mh.Demonstrations.from_csv("~/d.csv")) == 3
    assert sorted(path.name for path in here.iterdir()) == ["mm"]


def test_output_never_replaces_an_input(tmp_path):
    (tmp_path / "reward.csv").write_text(GOOD)
    (tmp_path / "link").symlink_to(tmp_path)
    for place in (tmp_path, tmp_path / "link"):
        result = CliRunner().invoke(app, ["fit", str(tmp_path / "reward.csv"), "--out", str(place)])
        assert result.exit_code == 2
        assert "would replace the input" in result.stderr
    assert (tmp_path / "reward.csv").read_text() == GOOD


def test_output_works_where_the_parent_is_another_disk(tmp_path, monkeypatch):
    """Moving a file into the directory from outside it fails, as it does across file systems."""
    replace = os.replace
    (tmp_path / "disk").mkdir()

    def within(source, target):
        if (tmp_path / "disk") not in Path(source).parents:
            raise OSError(18, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr(os, "replace", within)
    write_all(tmp_path / "disk", ["a"], lambda draft: (draft / "a").write_text("x"))
    assert [p.name for p in (tmp_path / "disk").iterdir()] == ["a"]


@pytest.mark.slow
def test_numbers_are_printed_even_if_writing_fails(tmp_path):
    domain = mh.domains.cliff()
    mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 60).to_csv(tmp_path / "d.csv")
    domain.mdp.to_npz(tmp_path / "m.npz")
    files = [str(tmp_path / name) for name in ("d.csv", "m.npz", "out")]
    arguments = ["fit", files[0], "--transitions", files[1], "--quick", "--out", files[2]]
    with small_files():
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Planning horizons" in result.stdout
    assert f"multihorizon: {tmp_path / 'out'}: File too large" in result.stderr


@pytest.mark.slow
def test_control_characters_are_shown_not_obeyed(tmp_path):
    name = "\x1b[31mann\x07\u202e"
    assert visible(name) == "\\x1b[31mann\\x07\\u202e"
    assert visible("Zoë 👩‍💻 日本") == "Zoë 👩‍💻 日本"
    domain = mh.domains.cliff()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 60, names=[name, "b", "c"])
    table.to_csv(tmp_path / "d.csv")
    domain.mdp.to_npz(tmp_path / "m.npz")
    arguments = ["fit", tmp_path / "d.csv", "--transitions", tmp_path / "m.npz", "--quick", "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0
    for text in (result.output, *((tmp_path / "out" / name).read_text() for name in ("people.csv", "report.html"))):
        assert "\x1b[31mann" not in text
        assert "\\x1b[31mann" in text
    assert json.loads((tmp_path / "out" / "result.json").read_text())["experts"][0] == name
    (tmp_path / "d.csv").write_text(GOOD.replace("bob,1,0,home", "bob,1,0,\x1b[2Jmoon"))
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "d.csv"), "--transitions", str(tmp_path / "m.npz")])
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr


def test_warnings_of_libraries_come_without_their_source(capsys):
    with plain_errors():
        warnings.simplefilter("always")
        warnings.warn("overflow encountered", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "multihorizon: note: overflow encountered\n"


def test_impossible_moves_name_the_line(tmp_path):
    (tmp_path / "d.csv").write_text(GOOD.replace("bob,1,0,home,ride,home", "bob,1,0,home,ride,town"))
    with pytest.raises(ValueError, match=r"1 impossible move: from home by ride to town \(.*d\.csv, line 4 "):
        require_agreement(mh.Demonstrations.from_files(tmp_path / "d.csv"), mdp())


def test_letters_that_look_alike_are_told_apart():
    with pytest.raises(ValueError, match=r"in letters 'h\\u043eme', not 'home'"):
        positions(["home"], ["h\u043eme", "road"], "state")


#: Numbers that are too large for a computer: the file they stand in, and the command that reads it.
TOO_LARGE = {
    "a payment": ("n.csv", "state,amount\nroad,{}\n", ["--known-reward", "n.csv"]),
    "a step": ("n.csv", f"{HEADER}\nann,1,{{}},home,walk,road\n", []),
    "a probability": ("n.csv", "state,action,next_state,probability\nhome,walk,road,{}\n", ["--transitions", "n.csv"]),
    "a feature": ("n.csv", "state,pay\nhome,{}\n", ["--features", "n.csv"]),
    "a recovery": ("n.json", '{{"sizes": [{}]}}', ["--recovered", "n.json"]),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_number_of_400_digits_is_one_sentence(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, text, options = TOO_LARGE[case]
    Path(name).write_text(text.format("9" * 400))
    Path("d.csv").write_text(GOOD)
    result = CliRunner().invoke(app, ["fit", *(["d.csv", *options] if options else [name])])
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 400
    assert name in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--deviations", "1e300"], "--deviations must be at most 1e+100"),
        (["--temperature", "1e300"], "--temperature must be one of"),
        (["--ridge", "1e300"], "--ridge must be at most 1e+100"),
        (["--jobs", "9" * 20], "--jobs must be at most 4096"),
        (["--formula", "~ " + " + ".join(["age"] * 3001)], "formula must have at most 500 terms"),
    ],
)
def test_options_beyond_all_numbers(options, said, tmp_path):
    (tmp_path / "d.csv").write_text(GOOD)
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "d.csv"), *options])
    assert result.exit_code == 2, result.output
    assert said in result.stderr


def test_a_mended_table_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    """Of a folder in which nobody can write, as of a disk that is full."""
    (tmp_path / "d.csv").write_text(GOOD)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "d.csv"), "--write", "/proc/mended.csv"])
    assert result.exit_code == 2
    assert "/proc/mended.csv" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_name_without_end_is_refused_at_once(tmp_path):
    (tmp_path / "d.csv").write_text(GOOD.replace("home", "h" * 100_000))
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "d.csv")])
    assert result.exit_code == 2
    assert "must have at most 1,000 letters" in result.stderr
    assert len(result.stderr) < 500


def test_a_computation_that_breaks_down_says_what_helps(capsys):
    with pytest.raises(typer.Exit), plain_errors():
        raise np.linalg.LinAlgError("Eigenvalues did not converge")
    assert "span too many powers of ten" in " ".join(capsys.readouterr().err.split())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_too_little_memory_is_said_and_not_waited_for():
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 * 10**8,) * 2); from multihorizon.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "a gigabyte of memory" in ended.stderr


def test_a_mended_table_runs_nothing_in_a_spreadsheet_and_means_the_same(tmp_path):
    rows = [HEADER + ",=note", "ann,1,0,home,=cmd(),road,@x", "ann,1,1,road,'=cmd(),town,-5", ",1,1,road,=cmd(),town,=1+1"]
    (tmp_path / "d.csv").write_text("\n".join(rows) + "\n")
    assert CliRunner().invoke(app, ["check", str(tmp_path / "d.csv"), "--write", str(tmp_path / "m.csv")]).exit_code == 0
    cells = [cell for line in (tmp_path / "m.csv").read_text().splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell[:1] in "=+@" and cell]
    assert "-5" in cells
    assert mh.Demonstrations.from_csv(tmp_path / "m.csv").actions == ("=cmd()",)


def test_time_stamps_with_and_without_a_zone_are_refused():
    rows = pd.DataFrame({"expert": "ann", "episode": 0, "step": [0, 1], "state": ["a", "b"], "action": "go"})
    for stamps, said in (
        (["2024-05-31T14:30Z", "2024-05-31T15:30"], "row 1 .* must have a time zone in all rows or in none"),
        (["2024-05-31", "9999-12-31"], "dates from 1678 to 2261"),
        (pd.Series(["9999-12-30", "9999-12-31"]).astype("datetime64[s]"), "dates from 1678 to 2261"),
    ):
        with pytest.raises(ValueError, match=said):
            mh.Demonstrations.from_frame(rows.assign(t=stamps), time="t", time_unit="hour")
    for stamps in (["2024-05-31", "2024-06-01"], ["2024-05-31T14:30+02:00", "2024-06-01T12:30Z"]):
        assert len(mh.Demonstrations.from_frame(rows.assign(t=stamps), time="t", time_unit="hour")) == 2


def test_a_terminal_without_a_width_shows_what_there_is(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "0")
    PlainConsole().print("3 rows, 2 experts")
    assert capsys.readouterr().out == "3 rows, 2 experts\n"
