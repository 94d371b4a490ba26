"""Malformed inputs through the real command line: no traceback, no crash, one sentence that a newcomer can act on.

Each case writes its files into an empty directory and runs the program there, in a process of its own that has loaded the
program already. A sentence counts if the program ends with exit code 2, prints one line that names the file or the option, and
says what is expected or what to do. Some inputs are no mistakes but must not pass in silence: those of `SPOKEN` end with exit
code 0 and must say the words given there.
`python benchmarks/malformed.py` prints every sentence, for reading, and the totals; `python benchmarks/malformed.py 3 10` runs
the cases from 3 to 9. It needs a system that can fork.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import sys
import tarfile
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import multihorizon.cli.fit
import multihorizon.cli.questions
import multihorizon.cli.reproduce  # noqa: F401 - loaded once for all cases
from multihorizon import MDP, Demonstrations, domains
from multihorizon.analysis import analyse
from multihorizon.cli import app
from multihorizon.report.files import write_fit
from multihorizon.result import package_version

HEADER = "expert,episode,step,state,action,next_state"
ROWS = [
    "ann,1,0,home,walk,road",
    "ann,1,1,road,ride,town",
    "ann,2,0,home,walk,home",
    "ann,2,1,home,ride,road",
    "bob,1,0,home,ride,home",
    "bob,1,1,home,walk,road",
    "bob,1,2,road,walk,road",
    "bob,1,3,road,ride,town",
]
GOOD = "\n".join([HEADER, *ROWS]) + "\n"
MOVES = "state,action,next_state,probability\n" + "".join(
    f"{s},{a},{t},0.5\n"
    for s, ends in (("home", ("home", "road")), ("road", ("road", "town")))
    for a in ("walk", "ride")
    for t in ends
)
PAY = "state,pay\nhome,0\nroad,1\ntown,2\n"
#: Eight persons who decide alike, a table of them, and steps whose states are numbers.
NAMES = ("ann", "bob", "cem", "dan", "eve", "fay", "gus", "hal")
MANY = HEADER + "\n" + "".join(row.replace("bob", name) + "\n" for name in NAMES for row in ROWS[4:])
PERSONS = "expert,group,age\n" + "".join(f"{name},{'old' if i < 4 else 'young'},{30 + 3 * i}\n" for i, name in enumerate(NAMES))
STEPS = "expert,episode,step,action,x,y\n" + "".join(
    f"{name},1,{i},{'left' if (i + len(name)) % 2 else 'right'},{0.1 * i:.1f},{(7 * i) % 5}\n"
    for name in ("ann", "bob")
    for i in range(30)
)
#: More digits than any number of a computer has.
DIGITS = "9" * 400
WORDS = re.compile(
    r"must|but the next|save|[Cc]hoose|write|delete|make or download|give (?:each|the)|[Cc]orrect|Did you mean|is there|"
    r"never closed|is not|need|"
    r"the \w+ are"
)
Case = tuple[dict[str, str | bytes | Callable[[Path], object]], list[str]]


def demos(content: str | bytes, name: str = "d.csv", *more: str) -> Case:
    return {name: content}, ["fit", name, *more]


def moves(content: str | bytes | Callable[[Path], object], name: str = "t.csv", *more: str) -> Case:
    return {"d.csv": GOOD, name: content}, ["fit", "d.csv", "--transitions", name, *more]


def features(content: str) -> Case:
    return {"d.csv": GOOD, "t.csv": MOVES, "f.csv": content}, ["fit", "d.csv", "--transitions", "t.csv", "--features", "f.csv"]


def option(*more: str) -> Case:
    return {"d.csv": GOOD, "t.csv": MOVES}, ["fit", "d.csv", "--transitions", "t.csv", *more]


def people(content: str = PERSONS, formula: str = "~ group", *more: str) -> Case:
    return {"d.csv": MANY, "p.csv": content}, ["fit", "d.csv", "--quick", "--persons", "p.csv", "--formula", formula, *more]


def steps(content: str | bytes = STEPS, state: str = "x,y", *more: str) -> Case:
    return {"d.csv": content}, ["fit", "d.csv", "--state", state, "--quick", *more]


def command(name: str, *more: str, **files: str) -> Case:
    named = {name.replace("_", "."): content for name, content in files.items()}
    return {"d.csv": GOOD, "t.csv": MOVES, "p.csv": PERSONS, **named}, [name, "d.csv", "--transitions", "t.csv", *more]


def paid(content: str, *more: str) -> Case:
    return {"d.csv": GOOD, "t.csv": MOVES, "r.csv": content}, [
        *("fit", "d.csv", "--transitions", "t.csv", "--quick"),
        *("--known-reward", "r.csv", *more),
    ]


def parquet(**columns: object) -> Case:
    frame = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(",")).astype({"step": int}).assign(**columns)
    return {"d.parquet": lambda path: frame.to_parquet(path)}, ["fit", "d.parquet"]


def mdp(**changes: object) -> Case:
    def write(path: Path) -> None:
        rows = pd.read_csv(io.StringIO(MOVES))
        MDP.from_frame(rows).to_npz(path)
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **arrays | {name: np.asarray(value) for name, value in changes.items()})

    return moves(write, "m.npz")


def zipped(**files: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("d.csv")
        info.size = len(GOOD)
        archive.addfile(info, io.BytesIO(GOOD.encode()))
    return file.getvalue()


def swap(old: str, new: str, text: str = GOOD) -> str:
    assert old in text, old
    return text.replace(old, new, 1)


def _walks() -> Demonstrations:
    grid = domains.big_small()
    return Demonstrations.simulate(grid.mdp, grid.soft_experts(), 60, seed=0)


def _grid_walks(path: Path) -> None:
    _walks().to_csv(path)


@cache
def _fit() -> dict[str, bytes]:
    """The files of a fit."""
    with tempfile.TemporaryDirectory() as folder:
        write_fit(Path(folder), analyse(_walks(), domains.big_small().mdp, quick=True, deviations=0.0), {})
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def fitted(name: str, edit: Callable[[dict[str, Any]], dict[str, Any]], pay: str = "state,amount\n17,1\n") -> Case:
    """A prediction from the folder of a fit, of which somebody has edited one file."""

    def write(path: Path) -> None:
        path.mkdir()
        for file, content in _fit().items():
            (path / file).write_bytes(content)
        if name.endswith(".json"):
            (path / name).write_text(json.dumps(edit(json.loads(_fit()[name]))))
        else:
            with np.load(path / name) as file:
                arrays = dict(file)
            np.savez(path / name, **edit(arrays))

    return {"fit": write, "pay.csv": pay}, ["predict", "fit", "--pay", "pay.csv"]


def timed(stamp: str) -> str:
    """The good table with time stamps, of which the first is this one."""
    lines = [f"{row},2024-06-01T1{i}:00" if stamp[:1] == "2" else f"{row},{i}" for i, row in enumerate(ROWS)]
    return "\n".join([f"{HEADER},when", f"{ROWS[0]},{stamp}", *lines[1:]]) + "\n"


LONG = GOOD + "".join(f"cy,{i},0,home,walk,home\n" for i in range(2000))

CASES: dict[str, Case] = {
    # Tables of decisions: text
    "header only": demos(HEADER),
    "no header": demos("\n".join(ROWS)),
    "header again in the middle": demos(GOOD + GOOD),
    "byte order mark and semicolons": demos("\ufeff" + GOOD.replace(",", ";")),
    "semicolons and decimal commas": demos(GOOD.replace(",", ";").replace("0;", "0,0;")),
    "old Mac line ends, empty state": demos(swap("bob,1,0,home", "bob,1,0,").replace("\n", "\r")),
    "Windows line ends, bad step": demos(swap("bob,1,2", "bob,1,two").replace("\n", "\r\n")),
    "capital column names": demos(swap(HEADER, HEADER.upper())),
    "column names in another language": demos(swap(HEADER, "experte,episode,schritt,zustand,aktion,folgezustand")),
    "comment before the header": demos("# exported 2026-01-01\n" + GOOD),
    "row numbers as an unnamed column in the rows only": demos(
        HEADER + "\n" + "\n".join(f"{i},{row}" for i, row in enumerate(ROWS))
    ),
    "decimal comma in quotation marks": demos(swap("bob,1,1", 'bob,1,"1,0"')),
    "step is a date": demos(swap("bob,1,1", "bob,1,2026-01-01")),
    "step NaN": demos(swap("bob,1,1", "bob,1,NaN")),
    "step infinite": demos(swap("bob,1,1", "bob,1,inf")),
    "step 1st": demos(swap("bob,1,1", "bob,1,1st")),
    "step true": demos(swap("bob,1,1", "bob,1,true")),
    "all steps true": demos(re.sub(r"(ann|bob),(\d),\d", r"\1,\2,true", GOOD)),
    "step beyond whole numbers": demos(swap("bob,1,1", "bob,1,99999999999999999999")),
    "all steps empty": demos(re.sub(r"(ann|bob),(\d),\d", r"\1,\2,", GOOD)),
    "all steps equal": demos(re.sub(r"(ann|bob),(\d),\d", r"\1,\2,0", GOOD)),
    "last line cut": demos(GOOD[: GOOD.rindex("ride")]),
    "a line with two cells": demos(swap("bob,1,1,home,walk,road", "bob,1")),
    "comma inside a name": demos(swap("home,walk,home", "home, sweet,walk,home")),
    "blank state": demos(swap("bob,1,0,home", "bob,1,0, ")),
    "invisible state": demos(swap("bob,1,0,home", "bob,1,0,\u200b\u200b")),
    "blank expert": demos(swap("bob,1,0", "\t,1,0")),
    "empty action in quotation marks": demos(swap("bob,1,0,home,ride", 'bob,1,0,home,""')),
    "empty episode": demos(swap("bob,1,0", "bob,,0")),
    "a line of commas": demos(GOOD + ",,,,,\n"),
    "only commas": demos(",,,,,\n,,,,,\n"),
    "no next states and no transitions": demos(re.sub(r",\w+\n", ",\n", swap(",next_state\n", ",next_state \n"))),
    "no column next_state and no transitions": demos(re.sub(r",\w+\n", "\n", GOOD)),
    "two episodes under one label": demos(GOOD + "bob,1,0,home,walk,road\n"),
    "a step left out": demos(swap("bob,1,2,road,walk,road\n", "")),
    "next state contradicts": demos(swap("bob,1,1,home,walk,road", "bob,1,1,home,walk,town")),
    "the whole table twice in one file": demos(GOOD + "\n".join(ROWS)),
    "quotation mark left open": demos(swap("bob,1,1,home", 'bob,1,1,"home')),
    "quotation mark left open in the header": demos('"' + GOOD),
    "a cell of a megabyte, never closed": demos(swap("bob,1,1,home", 'bob,1,1,"' + "x" * 1_000_000)),
    "NUL late in the file": demos(LONG + "cy,\x00,0,home,walk,home\n" + "cy,9999,0,\x00,walk,home\n"),
    "Latin-1 late in the file": demos((LONG + "Zoé,1,0,home,walk,home\n").encode("latin-1")),
    "a character cut in two at the end": demos((GOOD + "Zoé,1,0,home,walk,hé").encode()[:-1]),
    "UTF-32": demos(GOOD.encode("utf-32")),
    "UTF-16 big-endian": demos(b"\xfe\xff" + GOOD.encode("utf-16-be")),
    "random bytes": demos(np.random.default_rng(0).bytes(5000)),
    "a picture": demos(b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    "a PDF": demos(b"%PDF-1.7 ..."),
    "XML": demos("<?xml version='1.0'?><table/>"),
    "a JSON list": demos('[{"expert": "ann"}]'),
    "a single word": demos("hello\n"),
    "a column twice": demos(GOOD.replace("\n", ",x\n").replace("next_state,x", "next_state,expert")),
    # Names and places of files
    "a directory named like a table": ({}, ["fit", "."]),
    "a folder with other columns": ({"d.csv": GOOD, "e.csv": PAY}, ["fit", "."]),
    "a folder with a wrong line": ({"d.csv": GOOD, "e.csv": HEADER + "\ncy,1,x,home,walk,home\n"}, ["fit", "."]),
    "a file that does not exist": ({}, ["fit", "none.csv"]),
    "an empty name": ({}, ["fit", ""]),
    "a name too long": ({}, ["fit", "x" * 400 + ".csv"]),
    "a name with an escape": ({}, ["fit", "\x1b[31mred.csv"]),
    "a broken link": ({"d.csv": lambda path: path.symlink_to("nowhere.csv")}, ["fit", "d.csv"]),
    "a pipe": ({"d.csv": lambda path: os.mkfifo(path)}, ["fit", "d.csv"]),
    "no ending": demos(GOOD, "table"),
    "tab-separated": demos(GOOD.replace(",", "\t"), "d.tsv"),
    "Excel": demos(zipped(**{"xl/workbook.xml": ""}), "d.xlsx"),
    "an R file": demos(b"RDX3", "d.rds"),
    # Compressed files
    "nothing compressed": demos(gzip.compress(b""), "d.csv.gz"),
    "compressed twice": demos(gzip.compress(gzip.compress(GOOD.encode())), "d.csv.gz"),
    "garbage after the end": demos(gzip.compress(LONG.encode()) + b"garbage", "d.csv.gz"),
    "checksum wrong": demos(gzip.compress(GOOD.encode())[:-8] + b"\0" * 8, "d.csv.gz"),
    "text named gz": demos(GOOD, "d.csv.gz"),
    "text named bz2": demos(GOOD, "d.csv.bz2"),
    "text named xz": demos(GOOD, "d.csv.xz"),
    "text named zip": demos(GOOD, "d.csv.zip"),
    "zip of two tables": demos(zipped(**{"a.csv": GOOD, "b.csv": GOOD}), "d.csv.zip"),
    "zip of nothing": demos(zipped(), "d.csv.zip"),
    "zip with a password": demos(
        zipped(**{"a.csv": GOOD})
        .replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01")
        .replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"),
        "d.csv.zip",
    ),
    "zstandard": demos(b"\x28\xb5\x2f\xfd", "d.csv.zst"),
    "tar": demos(tarred(), "d.csv.tar.gz"),
    # Parquet
    "empty Parquet": demos(b"", "d.parquet"),
    "CSV named Parquet": demos(GOOD, "d.parquet"),
    "Parquet of lists": parquet(action=[["walk"]] * 8),
    "Parquet of bytes": parquet(state=[b"home"] * 8),
    "Parquet with fractions as steps": parquet(step=[0.5] * 8),
    "Parquet with dates as steps": parquet(step=pd.Timestamp("2026-01-01")),
    "Parquet with missing states": parquet(state=[None, *["home"] * 7]),
    # Transitions
    "npy named npz": moves(lambda path: np.save(path.open("wb"), np.eye(3)), "m.npz"),
    "pickle inside": moves(lambda path: np.savez(path, data=np.array([{}, 1], dtype=object)), "m.npz"),
    "empty npz": moves(b"", "m.npz"),
    "text inside": moves(zipped(**{"data.npy": "hello"}), "m.npz"),
    "names twice": mdp(state_names=["home", "home", "town"]),
    "initial sums to a half": mdp(initial=[0.25, 0.25, 0.0]),
    "nothing available": mdp(available=np.zeros((3, 2), dtype=bool)),
    "probabilities of 1e308": mdp(data=np.full(8, 1e308)),
    "negative pointers": mdp(indptr=[0, -2, 4, 4, 6, 8, 8]),
    "grid of another size": mdp(grid_shape=[7, 7]),
    "percent": moves(swap("0.5", "50%", MOVES)),
    "decimal comma": moves(swap("0.5", '"0,5"', MOVES)),
    "negative probability": moves(swap("0.5", "-0.5", MOVES)),
    "sum of 0.999": moves(swap("0.5", "0.499", MOVES)),
    "probability 1e400": moves(swap("0.5", "1e400", MOVES)),
    "no action": moves(swap("home,walk", "home,", MOVES)),
    "a move twice": moves(MOVES + "home,walk,road,0.5\n"),
    "header alone": moves("state,action,next_state,probability\n"),
    "the decisions as transitions": moves(GOOD),
    "numbers against names": moves(MOVES.replace("home", "0").replace("road", "1").replace("town", "2")),
    "names with another capital": moves(MOVES.replace("home", "Home")),
    "Cyrillic letters": moves(MOVES.replace("home", "hоme")),
    "moves that never happen": moves(swap("home,ride,home,0.5\nhome,ride,road,0.5", "home,ride,road,1", MOVES)),
    "an end in which somebody decides": moves(
        MOVES.replace("road,walk,road,0.5\nroad,walk,town,0.5\nroad,ride,road,0.5\nroad,ride,town,0.5\n", "")
    ),
    "an action that is not there": moves(MOVES.replace("road,walk,road,0.5\nroad,walk,town,0.5\n", "")),
    "JSON": moves("{}", "t.json"),
    "one file too many": moves(MOVES, "t.csv", "--transitions", "t.csv"),
    "the rest estimated without next states": (
        {"d.csv": re.sub(r",\w+\n", "\n", GOOD), "t.csv": "state,action,next_state,probability\nroad,ride,town,1\n"},
        ["fit", "d.csv", "--transitions", "t.csv", "--estimate-rest"],
    ),
    "the rest of nothing": demos(GOOD, "d.csv", "--estimate-rest"),
    # Features
    "a state twice": features(PAY + "home,3\n"),
    "a state missing": features(swap("road,1\n", "", PAY)),
    "a word for a number": features(swap("road,1", "road,high", PAY)),
    "no feature": features("state\nhome\nroad\ntown\n"),
    "an empty number": features(swap("road,1", "road,", PAY)),
    "no column state": features(swap("state", "place", PAY)),
    "an unknown action": features("state,action,pay\nhome,fly,1\n"),
    "an infinite feature": features(swap("road,1", "road,inf", PAY)),
    # Options
    "smoothing below zero": demos(GOOD, "d.csv", "--smoothing", "-1"),
    "smoothing NaN": demos(GOOD, "d.csv", "--smoothing", "nan"),
    "smoothing is a word": demos(GOOD, "d.csv", "--smoothing", "much"),
    "ridge below zero": option("--ridge", "-1"),
    "ridge NaN": option("--ridge", "nan"),
    "seed below zero": option("--seed", "-1"),
    "temperature is a word": option("--temperature", "hot"),
    "out is a file": option("--out", "d.csv"),
    "out inside a file": option("--out", "d.csv/deeper"),
    "out where nothing can be written": option("--out", "/proc/multihorizon"),
    "out holds an input": ({"result.json": "", "reward.csv": GOOD}, ["fit", "reward.csv", "--out", "."]),
    "a table twice": ({"d.csv": GOOD}, ["fit", "d.csv", "d.csv"]),
    "a copy of a table": ({"d.csv": GOOD, "e.csv": GOOD}, ["identify", "d.csv", "e.csv"]),
    "no table": ({}, ["fit"]),
    "an unknown option": option("--horizon", "3"),
    "an unknown command": ({}, ["estimate", "d.csv"]),
    "jobs zero": ({}, ["reproduce", "--out", "x", "--jobs", "0"]),
    "a cluster that is not there": option("--cluster", "tcp://127.0.0.1:1"),
    "a cluster without a port": option("--cluster", "somewhere"),
    "the tour into a file": ({"file": ""}, ["demo", "--out", "file"]),
    "identify with a bad table": ({"d.csv": swap("bob,1,1", "bob,1,x")}, ["identify", "d.csv"]),
    # What the second round of hostile data found
    "bytes in Parquet": parquet(action=[b"walk"] * 8),
    "a line of 48 MB at the end": demos(GOOD + "cy,1,0,home,walk," + "x" * 48_000_000),
    "a header cell that never ends": demos('"' + "x" * 200_000),
    "a small file that unpacks to a gigabyte": demos(gzip.compress(b"a" * (1 << 30)), "d.csv.gz"),
    "ten thousand columns": demos(
        "\n".join(line + "".join(f",{f'c{i}' if line == HEADER else 0}" for i in range(10_000)) for line in [HEADER, *ROWS]),
        *("d.csv", "--quick"),
    ),
    "a control character in a name": demos(GOOD.replace("ann", "\x1b[31mann"), "d.csv", "--quick"),
    "a known reward of 1e308": paid(swap("town,2", "town,1e308", PAY)),
    "a feature of 1e308": features(swap("town,2", "town,1e308", PAY)),
    "a feature of 1e-300": features("state,pay\nhome,0\nroad,0\ntown,1e-300\n"),
    "a known reward that is constant": paid("state,pay\nhome,1\nroad,1\ntown,1\n", "--discount", "0.5"),
    "a known reward in another unit": paid("state,pay\nhome,0\nroad,100000\ntown,-200000\n", "--discount", "0.5"),
    "a penalty that decides": (
        {"d.csv": lambda path: _grid_walks(path)},
        ["fit", "d.csv", "--quick", "--ridge", "1000"],
    ),
    "a grid of negative size": mdp(grid_shape=[-1, -3]),
    "complete transitions and the rest of them": option("--estimate-rest", "--quick"),
    "a discount without a name": option("--discount", "=0.5"),
    "a temperature without a name": option("--temperature", "=1"),
    "out is empty": option("--out", ""),
    "transitions are empty": ({"d.csv": GOOD}, ["fit", "d.csv", "--transitions", ""]),
    "out is a link to nowhere": (
        {"d.csv": GOOD, "out": lambda path: path.symlink_to("nowhere")},
        ["fit", "d.csv", "--out", "out"],
    ),
    "out is below a link to nowhere": (
        {"d.csv": GOOD, "out": lambda path: path.symlink_to("nowhere")},
        ["goals", "d.csv", "--out", "out/deeper"],
    ),
    "smoothing infinite": demos(GOOD, "d.csv", "--smoothing", "inf"),
    "ridge infinite": option("--ridge", "inf"),
    "jobs minus two": option("--jobs", "-2"),
    "seed is a fraction": option("--seed", "0.5"),
    "an unknown way to look ahead": option("--lookahead", "far"),
    "check with two tables": (
        {"d.csv": GOOD, "e.csv": GOOD.replace("ride", "fly").replace("walk", "go")},
        ["check", "d.csv", "e.csv"],
    ),
    "check that replaces its table": ({"d.csv": GOOD}, ["check", "d.csv", "--write", "d.csv"]),
    # Persons
    "persons without a formula": ({"d.csv": MANY, "p.csv": PERSONS}, ["fit", "d.csv", "--persons", "p.csv"]),
    "a formula without persons": ({"d.csv": MANY}, ["fit", "d.csv", "--formula", "~ group"]),
    "persons do not exist": ({"d.csv": MANY}, ["fit", "d.csv", "--persons", "who.csv", "--formula", "~ 1"]),
    "persons are a folder": ({"d.csv": MANY}, ["fit", "d.csv", "--persons", ".", "--formula", "~ 1"]),
    "persons without the column expert": people(swap("expert", "person", PERSONS)),
    "a person twice": people(PERSONS + "ann,old,40\n"),
    "a person without a name": people(swap("ann,", ",", PERSONS)),
    "persons of another study": people(re.sub(r"\n(\w)", r"\nx\1", PERSONS)),
    "a person without a row": people(swap("hal,young,51\n", "", PERSONS)),
    "a person without an age": people(swap("ann,old,30", "ann,old,", PERSONS), "~ age"),
    "a person without an age, and none to be dropped": people(
        swap("ann,old,30", "ann,old,", PERSONS), "~ age", "--missing", "fail"
    ),
    "a word among the ages": people(swap("ann,old,30", "ann,old,thirty", PERSONS), "~ age"),
    "an age of 1e300": people(swap("ann,old,30", "ann,old,1e300", PERSONS), "~ age"),
    "an age without end": people(swap("ann,old,30", "ann,old,inf", PERSONS), "~ age"),
    "ages that are all alike": people(re.sub(r"\d+\n", "40\n", PERSONS), "~ age"),
    "no ages at all": people(re.sub(r"\d+\n", "\n", PERSONS), "~ age"),
    "a group of one person": people(swap("ann,old", "ann,odd", PERSONS)),
    "a group for everyone": people("expert,group\n" + "".join(f"{name},{name}\n" for name in NAMES)),
    "one group": people(PERSONS.replace("young", "old")),
    "two columns that say the same": people(
        "expert,a,b\n" + "".join(f"{n},{i},{2 * i}\n" for i, n in enumerate(NAMES)), "~ a + b"
    ),
    "an empty table of persons": people(""),
    "persons with semicolons": people(PERSONS.replace(",", ";")),
    "persons as JSON": people("[]"),
    "a longer row among persons": people(swap("ann,old,30", "ann,old,30,tall", PERSONS)),
    "an unknown way with missing persons": people(PERSONS, "~ group", "--missing", "guess"),
    "a group to compare with that is not there": people(PERSONS, "~ group", "--reference", "group=middle"),
    "a reference without a group": people(PERSONS, "~ group", "--reference", "group"),
    "a reference for a number": people(PERSONS, "~ age", "--reference", "age=30"),
    "a known discount beside persons": people(PERSONS, "~ group", "--discount", "0.5"),
    # Formulas
    "an empty formula": people(PERSONS, ""),
    "a formula without terms": people(PERSONS, "~ 0"),
    "a formula with a left side": people(PERSONS, "discount ~ group"),
    "a formula that ends early": people(PERSONS, "~ group +"),
    "a parenthesis left open": people(PERSONS, "~ (group + age"),
    "a quotation mark left open in a formula": people(PERSONS, "~ `group"),
    "a column that is not there": people(PERSONS, "~ sex"),
    "a formula that runs Python": people(PERSONS, '~ __import__("os").system("true")'),
    "a formula that writes a file": people(PERSONS, '~ np.save("x", age)'),
    "an unknown function": people(PERSONS, "~ sinh(age)"),
    "the logarithm of zero": people(swap("ann,old,30", "ann,old,0", PERSONS), "~ log(age)"),
    "a function of words": people(PERSONS, "~ log(group)"),
    "random effects as in lme4": people(PERSONS, "~ age + (1 | group)"),
    "a formula of a thousand letters": people(PERSONS, "~ " + "a" * 1000),
    "a formula with more terms than persons": people(PERSONS, "~ poly(age, 7)"),
    "a power without end": people(PERSONS, "~ (group + age)**999999999"),
    "no tilde": people(PERSONS, "group, age"),
    # States that are numbers
    "state columns that are not there": steps(STEPS, "x,z"),
    "no state column": steps(STEPS, ""),
    "a comma too many": steps(STEPS, "x,,y"),
    "a state column twice": steps(STEPS, "x,x"),
    "the action as a state": steps(STEPS, "x,action"),
    "an empty coordinate": steps(swap("left,0.1", "left,", STEPS) if "left,0.1" in STEPS else swap("right,0.1", "right,", STEPS)),
    "a word among coordinates": steps(re.sub(r",0\.3,", ",far,", STEPS, count=1)),
    "a coordinate without end": steps(re.sub(r",0\.3,", ",inf,", STEPS, count=1)),
    "a coordinate of 1e308": steps(re.sub(r",0\.3,", ",1e308,", STEPS, count=1)),
    "a coordinate that never changes": steps(re.sub(r",\d\.\d,", ",1.0,", STEPS), "x"),
    "one action": steps(STEPS.replace("left", "right")),
    "steps that leave a gap": steps("".join(line for line in STEPS.splitlines(keepends=True) if not line.startswith("ann,1,7,"))),
    "next coordinates that contradict": steps(STEPS.replace("x,y\n", "x,y,next_x\n").replace("0.1,2\n", "0.1,2,9\n"), "x"),
    "an end that is neither true nor false": steps(re.sub(r"(\d)\n", r"\1,maybe\n", swap("x,y\n", "x,y,terminated\n", STEPS))),
    "three steps": steps("".join(STEPS.splitlines(keepends=True)[:4])),
    "state and transitions": ({"d.csv": STEPS, "t.csv": MOVES}, ["fit", "d.csv", "--state", "x", "--transitions", "t.csv"]),
    "state and persons": (
        {"d.csv": STEPS, "p.csv": PERSONS},
        ["fit", "d.csv", "--state", "x", "--persons", "p.csv", "--formula", "~ 1"],
    ),
    "state and two tables": ({"d.csv": STEPS, "e.csv": STEPS}, ["fit", "d.csv", "e.csv", "--state", "x"]),
    "state of an unknown expert's discount": steps(STEPS, "x,y", "--discount", "zoe=0.5"),
    # Clusters
    "a cluster without a name": option("--cluster", ""),
    "a cluster with a port that is no number": option("--cluster", "tcp://127.0.0.1:many"),
    "a cluster with a port beyond all": option("--cluster", "tcp://127.0.0.1:99999999"),
    "a cluster by another protocol": option("--cluster", "http://127.0.0.1:1"),
    "a cluster for states that are numbers": steps(STEPS, "x,y", "--cluster", "tcp://127.0.0.1:1"),
    "a bad option beside a cluster": option("--cluster", "tcp://127.0.0.1:1", "--jobs", "0"),
    # goals
    "goals of a file that does not exist": ({}, ["goals", "none.csv"]),
    "goals of one expert": (
        {"d.csv": GOOD.replace("ann,1", "bob,8").replace("ann,2", "bob,9"), "t.csv": MOVES},
        ["goals", "d.csv", "--transitions", "t.csv"],
    ),
    "goals with three simulations": command("goals", "--simulations", "3"),
    "goals with simulations in words": command("goals", "--simulations", "many"),
    "goals at a temperature of zero": command("goals", "--temperature", "0"),
    "goals with a temperature of nobody": command("goals", "--temperature", "zoe=1"),
    "goals into a file": command("goals", "--out", "d.csv"),
    "goals with features of other states": command("goals", "--features", "f.csv", f_csv="state,pay\nmoon,1\n"),
    "goals with half a table of transitions": (
        {"d.csv": GOOD, "t.csv": MOVES[: len(MOVES) // 2]},
        ["goals", "d.csv", "--transitions", "t.csv"],
    ),
    "goals with a discount": command("goals", "--discount", "0.5"),
    # recover
    "recover of no people": command("recover", "--people", "0", "--persons", "p.csv", "--formula", "~ group"),
    "recover of people without a formula": command("recover", "--people", "20"),
    "recover with decisions below zero": command("recover", "--decisions", "-5"),
    "recover with half a decision": command("recover", "--decisions", "0.5"),
    "recover of one study": command("recover", "--studies", "1"),
    "recover with an effect that is no number": command(
        "recover", "--effect", "nan", "--persons", "p.csv", "--formula", "~ group"
    ),
    "recover with an effect of nothing": command("recover", "--effect", "1"),
    "recover of a term that is not there": (
        {"d.csv": MANY, "p.csv": PERSONS},
        ["recover", "d.csv", "--persons", "p.csv", "--formula", "~ group", "--term", "age"],
    ),
    "recover of two terms at once": (
        {"d.csv": MANY, "p.csv": PERSONS},
        ["recover", "d.csv", "--persons", "p.csv", "--formula", "~ group + age"],
    ),
    "recover of fewer people than terms": (
        {"d.csv": MANY, "p.csv": PERSONS},
        ["recover", "d.csv", "--persons", "p.csv", "--formula", "~ group", "--people", "2"],
    ),
    "recover with a temperature and a formula": command("recover", "--temperature", "1", "--formula", "~ 1"),
    "recover with a known reward of words": command(
        "recover", "--known-reward", "r.csv", r_csv="state,pay\nhome,a\nroad,b\ntown,c\n"
    ),
    "recover with seeds below zero": command("recover", "--seed", "-1"),
    "recover into a link to nowhere": (
        {"d.csv": GOOD, "out": lambda path: path.symlink_to("nowhere")},
        ["recover", "d.csv", "--out", "out"],
    ),
    "a recovery that is none": option("--recovered", "t.csv"),
    "a recovery of another kind": ({"d.csv": GOOD, "r.json": "{}"}, ["fit", "d.csv", "--recovered", "r.json"]),
    # What the third round of hostile data found
    **{
        f"{name} of 400 digits": case
        for name, case in {
            "a step": demos(f"{HEADER}\nann,1,{DIGITS},home,walk,road\n"),
            "a probability": moves(f"state,action,next_state,probability\nhome,walk,road,{DIGITS}\n"),
            "a feature": features(f"state,pay\nhome,{DIGITS}\nroad,0\ntown,1\n"),
            "a known reward": paid(f"state,pay\nhome,{DIGITS}\nroad,0\ntown,1\n"),
            "an age": people(PERSONS.replace("30", DIGITS), "~ age", "--missing", "fail"),
            "a recovery": ({"d.csv": GOOD, "r.json": f'{{"sizes": [{DIGITS}]}}'}, ["fit", "d.csv", "--recovered", "r.json"]),
            "a time": ({"d.csv": timed(f"{DIGITS}")}, ["fit", "d.csv", "--time", "when"]),
            "a number of processes": option("--jobs", DIGITS),
            "a number of studies": command("recover", "--studies", DIGITS),
            "a number of decisions": command("recover", "--decisions", DIGITS),
            "a number of simulations": command("goals", "--simulations", DIGITS),
        }.items()
    },
    "deviations of 1e300": option("--deviations", "1e300"),
    "a temperature of 1e300": option("--temperature", "1e300"),
    "a ridge of 1e300": option("--ridge", "1e300"),
    "smoothing of 1e300": demos(GOOD, "d.csv", "--smoothing", "1e300"),
    "a formula of 3,001 terms": people(PERSONS, "~ " + " + ".join(["age"] * 3001)),
    "a name of 100,000 letters": demos(GOOD.replace("home", "h" * 100_000)),
    "a mended table where nobody can write": ({"d.csv": GOOD}, ["check", "d.csv", "--write", "/proc/mended.csv"]),
    "the home of nobody": ({"d.csv": GOOD}, ["fit", "d.csv", "--out=~nobody-at-all/x"]),
    "stamps with and without a zone": (
        {"d.csv": timed("2024-05-31T14:30Z")},
        ["fit", "d.csv", "--time", "when", "--time-unit", "hour"],
    ),
    "believed transitions that are not there": demos(GOOD, "d.csv", "--believed"),
    "one file twice in one task": ({"d.csv": GOOD}, ["fit", "d.csv", "./d.csv", "--same-task"]),
    "a bonus of 400 digits": fitted("result.json", lambda content: content, f"state,amount\n17,{DIGITS}\n"),
    "edited options": fitted("solution.json", lambda content: content | {"options": None}),
    "edited deviations": fitted("solution.json", lambda old: old | {"evidence": {**old["evidence"], "deviations": 3}}),
    "another solver": fitted("solution.json", lambda content: content | {"solver": "Population"}),
    "one parameter too few": fitted("solution.json", lambda content: content | {"reward": content["reward"][1:]}),
    "edited warnings": fitted("result.json", lambda content: content | {"warnings": 5}),
    "pointers of counts beyond the data": fitted(
        "task.npz", lambda arrays: arrays | {"counts_indptr": arrays["counts_indptr"] + 10**6}
    ),
    "columns of counts that are not there": fitted(
        "task.npz", lambda arrays: arrays | {"counts_indices": arrays["counts_indices"] + 10**9}
    ),
    "counts of nobody": fitted("task.npz", lambda arrays: arrays | {"counts_data": 0 * arrays["counts_data"]}),
    # What the fourth round found or tried
    "counts of another fit": fitted("task.npz", lambda arrays: arrays | {"counts_data": 3 * arrays["counts_data"]}),
    "counts of 1e200": fitted("task.npz", lambda arrays: arrays | {"counts_data": 1e200 * arrays["counts_data"]}),
    "a saved temperature without end": fitted("solution.json", lambda content: content | {"temperature": ["infinity"] * 3}),
    "a saved discount of 1.7": fitted("solution.json", lambda content: content | {"discounts": [1.7, 0.5, 0.5]}),
    "a saved discount that is not there": fitted("solution.json", lambda content: content | {"discounts": [None, 0.5, 0.5]}),
    "a saved reward of 1e140": fitted("solution.json", lambda content: content | {"reward": [1e140, *content["reward"][1:]]}),
    "a standard error below zero": fitted("solution.json", lambda content: content | {"standard_errors": [-3.0, 0.1, 0.1]}),
    "an option that no solver has": fitted("solution.json", lambda content: content | {"options": {"colour": 5}}),
    "a status of another program": fitted("solution.json", lambda content: content | {"status": "done"}),
    "a discount twice": demos(GOOD, "d.csv", "--discount", "ann=0.5", "--discount", "ann=0.7"),
    "temperatures of both kinds": demos(GOOD, "d.csv", "--temperature", "1", "--temperature", "per-expert"),
    "more types than episodes": demos(MANY, "d.csv", "--quick", "--types", "100", "--distribution", "types"),
    "types without their distribution": demos(MANY, "d.csv", "--types", "2"),
    "one known reward for two actions": paid("state,action,reward\nhome,walk,1\n"),
    "the transitions as decisions": ({"t.csv": MOVES}, ["fit", "t.csv"]),
    "persons as episodes": ({"d.csv": GOOD, "p.csv": PERSONS}, ["fit", "d.csv", "--episodes", "p.csv", "--formula", "~ group"]),
    "a known reward that may differ": (
        {"d.csv": GOOD, "t.csv": MOVES, "r.csv": PAY},
        [
            *("identify", "d.csv", "--transitions", "t.csv", "--known-reward", "r.csv", "--within", "0.1"),
        ],
    ),
    "nothing to choose": demos(f"{HEADER}\nann,1,0,a,x,b\nann,1,1,b,x,c\nann,2,0,a,x,b\nann,2,1,b,x,c\n"),
    "labels that other programs take for missing": demos(GOOD.replace("home", "NA").replace("road", "None"), "d.csv", "--quick"),
    "a pilot that is no fit": ({"d.csv": GOOD}, ["design", "--pilot", ".", "--episodes", "3"]),
    "a bonus for no action": (fitted("result.json", lambda content: content)[0], ["predict", "fit", "--nudge", "17:"]),
    "a recovery with code": ({"d.csv": GOOD, "r.json": '{"sizes": "__import__(1)"}'}, ["fit", "d.csv", "--recovered", "r.json"]),
}


#: What must be said of inputs that are no mistakes.
SPOKEN = {
    "check with two tables": "share no",
    "a penalty that decides": "and not the decisions, sets the discounts",
    "a known reward that is constant": "cannot be estimated",
    "a known reward in another unit": "cannot be estimated",
    "complete transitions and the rest of them": "No transitions were estimated",
    "a control character in a name": "\\x1b[31mann",
    "ten thousand columns": "2 experts, 3 episodes, 8 decisions",
    "a coordinate that never changes": "Can the data tell? No",
    "goals of one expert": "One expert alone shares a goal with nobody",
    "a person without a row": "left out",
    "a person without an age": "left out",
    "a group of one person": "left out",
    "nothing to choose": "There was nothing to choose",
    "labels that other programs take for missing": "2 experts, 3 episodes, 8 decisions",
}


def run(name: str, case: Case) -> tuple[bool, bool, str]:
    """Whether the program crashed, whether it gave one useful sentence, and what it said."""
    files, arguments = case
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            path = Path(folder, file)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = os.fork()
            if not process:
                _child(folder, arguments, [stdout.fileno(), stderr.fileno()])
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            for file in (stdout, stderr):
                file.seek(0)
            printed, said = (file.read().decode(errors="replace").strip() for file in (stdout, stderr))
    crashed = code not in (0, 2) or "Traceback" in said
    if name in SPOKEN:
        return crashed, code == 0 and SPOKEN[name] in printed, next((x for x in printed.splitlines() if SPOKEN[name] in x), said)
    lines = [line for line in said.splitlines() if line.startswith("multihorizon: ")]
    usage = "Usage: " in said
    useful = code == 2 and (usage or (len(said.splitlines()) == len(lines) == 1 and bool(WORDS.search(said))))
    return crashed, useful, said.splitlines()[-2].strip("│ ") if usage else said[:400] or f"exit code {code}: {printed[:200]}"


def _child(folder: str, arguments: list[str], outputs: list[int]) -> None:
    """Be the program, until it ends or two minutes are over."""
    signal.alarm(120)
    os.chdir(folder)
    for stream, output in enumerate(outputs, start=1):
        os.dup2(output, stream)
    code = 1
    try:
        app(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Run every case, print what was said, and the totals."""
    os.environ["COLUMNS"] = "400"
    crashes = useful = 0
    first, last = (int(number) for number in (sys.argv[1:3] or (0, len(CASES))))
    chosen = list(CASES.items())[first:last]
    for name, case in chosen:
        crashed, good, said = run(name, case)
        crashes, useful = crashes + crashed, useful + good
        print(f"{'CRASH' if crashed else 'ok' if good else 'UNCLEAR'} | {name} | {said}", flush=True)
    print(f"{len(chosen)} malformed inputs, multihorizon {package_version()}: {crashes} crashes, {useful} sentences to act on")


if __name__ == "__main__":
    main()
