"""Malformed inputs through the real command line: no traceback, no crash, one sentence that a newcomer can act on.

Each case writes its files into an empty directory and runs the program there. A sentence counts if the program ends with exit
code 2, prints one line that names the file or the option, and says what is expected or what to do.
`python benchmarks/malformed.py` prints every sentence, for reading, and the totals; `python benchmarks/malformed.py 3 10` runs
the cases from 3 to 9.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from multihorizon.solution import package_version
from multihorizon.tables.transitions import transitions_from_frame

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
WORDS = re.compile(
    r"must|but the next|save|choose|write|delete|make or download|give each|Did you mean|is there|never closed|is not|needs"
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


def parquet(**columns: object) -> Case:
    frame = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(",")).astype({"step": int}).assign(**columns)
    return {"d.parquet": lambda path: frame.to_parquet(path)}, ["fit", "d.parquet"]


def mdp(**changes: object) -> Case:
    def write(path: Path) -> None:
        rows = pd.read_csv(io.StringIO(MOVES))
        transitions_from_frame(rows).to_npz(path)
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
}


def run(case: Case) -> tuple[bool, bool, str]:
    """Whether the program crashed, whether it gave one useful sentence, and what it said."""
    files, arguments = case
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        result = subprocess.run(
            [sys.executable, "-m", "multihorizon", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"COLUMNS": "400"},
        )
    said = result.stderr.strip()
    crashed = result.returncode not in (0, 2) or "Traceback" in said
    lines = [line for line in said.splitlines() if line.startswith("multihorizon: ")]
    usage = "Usage: " in said
    useful = result.returncode == 2 and (usage or (len(said.splitlines()) == len(lines) == 1 and bool(WORDS.search(said))))
    return crashed, useful, said.splitlines()[-2].strip("│ ") if usage else said[:400] or f"exit code {result.returncode}"


def main() -> None:
    """Run every case, print what was said, and the totals."""
    crashes = useful = 0
    first, last = (int(number) for number in (sys.argv[1:3] or (0, len(CASES))))
    chosen = list(CASES.items())[first:last]
    for name, case in chosen:
        crashed, good, said = run(case)
        crashes, useful = crashes + crashed, useful + good
        print(f"{'CRASH' if crashed else 'ok' if good else 'UNCLEAR'} | {name} | {said}", flush=True)
    print(f"{len(chosen)} malformed inputs, multihorizon {package_version()}: {crashes} crashes, {useful} sentences to act on")


if __name__ == "__main__":
    main()
