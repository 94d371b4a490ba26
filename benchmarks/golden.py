"""What the program prints and writes in seventeen runs, recorded once and compared after a change of the code.

    python benchmarks/golden.py record FOLDER [--only NAME …]
    python benchmarks/golden.py compare FOLDER [--only NAME …] [--lines 12]

Each run has a folder of its own with `stdout.txt` and the files that the program wrote: JSON, CSV, and pages without their
scripts, styles and pictures. `compare` runs everything again and prints the lines that differ. Seconds, versions and paths are
left out, and numbers in files are rounded to seven digits. It ends with exit code 1 where anything differs. Where a change of
words is meant, record anew and read the difference of the two folders.

Only the program is used, so the same script runs on old and new code: set PYTHONPATH to the `src` of either. All runs take about
two minutes of one processor.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import multihorizon as mh

DEMO = ("demo/decisions.csv", "--transitions", "demo/meadow.npz")
STUDY = ("d.csv", "--transitions", "t.npz", "--known-reward", "k.csv")
GAME = ("e.csv", "--transitions", "e.npz", "--known-reward", "points.csv")
#: The runs in order; later ones read what earlier ones wrote.
RUNS: dict[str, tuple[str, ...]] = {
    "demo": ("demo", "--out", "demo"),
    "fit": ("fit", *DEMO, "--out", "result"),
    "estimated": ("fit", "demo/decisions.csv", "--quick", "--out", "estimated"),
    "check": ("check", "messy.csv", "--write", "clean.csv", "--out", "checked"),
    "refused": ("fit", "messy.csv", "--out", "nothing"),
    "identify": ("identify", *DEMO, "--out", "identified"),
    "goals": ("goals", *DEMO, "--out", "goals"),
    "predict": ("predict", "result", "--forbid", "shut.csv", "--reach", "I3", "--out", "whatif"),
    "nudge": ("predict", "result", "--nudge", "I3", "--chance", "0.8", "--out", "nudge"),
    "design": ("design", "--pilot", "result", "--episodes", "200", "--out", "design"),
    "formula": ("fit", *STUDY, "--persons", "p.csv", "--formula", "~ group", "--out", "study"),
    "groups": ("predict", "study", "--pay", "pay.csv", "--typical", "--out", "groups"),
    "types": ("fit", *STUDY, "--distribution", "types", "--types", "2", "--formula", "~ 1", "--out", "types"),
    "recover": ("recover", *STUDY, "--persons", "p.csv", "--formula", "~ group", "--studies", "4", "--out", "recover"),
    "compare": ("compare", *STUDY, "--condition", "day", "--out", "compare"),
    "lookahead": (
        "fit",
        "e.csv",
        "--transitions",
        "e.npz",
        "--known-reward",
        "points.csv",
        "--lookahead",
        "depth",
        "--out",
        "shapes",
    ),
    "vectors": ("fit", "steps.csv", "--state", "x,y", "--quick", "--out", "vectors"),
}


def prepare(folder: Path) -> None:
    """Write the tables that the runs read."""
    cliff = mh.domains.cliff()
    names = [f"p{i}" for i in range(6)]
    policies = [mh.soft_plan(cliff.mdp, cliff.reward, g).policy for g in (0.3, 0.4, 0.5, 0.6, 0.7, 0.35)]
    table = mh.Demonstrations.simulate(cliff.mdp, policies, episodes=40, names=names).to_frame()
    day = np.where(table["episode"].astype(int) % 2 == 0, "monday", "friday")
    table.assign(day=day).to_csv(folder / "d.csv", index=False)
    pd.DataFrame({"expert": names, "group": list("aabbab")}).to_csv(folder / "p.csv", index=False)
    pd.DataFrame({"state": cliff.mdp.state_names, "reward": cliff.reward}).to_csv(folder / "k.csv", index=False)
    ordinary = [state for state, ends in zip(cliff.mdp.state_names, cliff.mdp.terminal, strict=True) if not ends]
    pd.DataFrame({"state": ordinary[-1:], "amount": [1.0]}).to_csv(folder / "pay.csv", index=False)
    cliff.mdp.to_npz(folder / "t.npz")
    pd.DataFrame({"state": ["E5"], "action": ["right"]}).to_csv(folder / "shut.csv", index=False)
    messy = pd.concat([table.head(30), table.head(2)]).astype(object)
    messy.iloc[5, messy.columns.get_loc("action")] = ""
    messy.iloc[9, messy.columns.get_loc("state")] = f" {messy.iloc[9]['state']}"
    messy.to_csv(folder / "messy.csv", index=False)
    mh.domains.navigation().simulate(decisions=300).to_frame().to_csv(folder / "steps.csv", index=False)
    task = mh.domains.space_adventure(mini_blocks=40)
    plans = [mh.soft_plan(task.mdp, task.reward, g, 4.0).policy for g in (0.4, 0.8)]
    task.simulate(plans, names=["x", "y"]).to_csv(folder / "e.csv")
    rows = [(s, a, task.reward[i, j]) for i, s in enumerate(task.mdp.state_names) for j, a in enumerate(task.mdp.action_names)]
    live = task.mdp.live.ravel()
    pd.DataFrame(rows, columns=["state", "action", "points"])[live].to_csv(folder / "points.csv", index=False)
    task.mdp.to_npz(folder / "e.npz")


def run(folder: Path, name: str) -> dict[str, str]:
    """What one run prints, and what it writes."""
    before = {path for path in folder.rglob("*") if path.is_file()}
    command = [sys.executable, "-W", "ignore", "-m", "multihorizon", *RUNS[name]]
    environment = os.environ | {"COLUMNS": "120", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "TERM": "dumb"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    texts = {"stdout.txt": f"exit code {done.returncode}\n{lines_of(done.stdout, folder)}\n{lines_of(done.stderr, folder)}"}
    for path in sorted({path for path in folder.rglob("*") if path.is_file()} - before):
        text = read(path)
        if text is not None:
            texts[str(path.relative_to(folder)).replace("/", "__")] = lines_of(text, folder)
    return texts


def read(path: Path) -> str | None:
    """The content of a file in lines that can be compared; None where it is none."""
    if path.suffix == ".json":
        return json.dumps(rounded(json.loads(path.read_text(encoding="utf-8"))), indent=1, ensure_ascii=False, sort_keys=True)
    if path.suffix == ".html":
        text = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>|base64,[^\"')]*", "", path.read_text(encoding="utf-8"))
        return "\n".join(line.strip() for line in re.sub(r"(<[^>]*>)+", "\n", text).splitlines() if line.strip())
    return path.read_text(encoding="utf-8") if path.suffix in (".csv", ".txt", ".md") else None


def rounded(value: object) -> object:
    """The same content with seven digits of each number."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items() if k not in ("seconds", "version", "options", "trace")}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.6e}") if isinstance(value, float) else value


def lines_of(text: str, folder: Path) -> str:
    """The text without paths, times and the blanks at the ends of lines."""
    text = re.sub(r"\b\d+(\.\d+)? s\b", "SECONDS", text.replace(str(folder), "FOLDER"))
    text = re.sub(r"(?m)^.*\d+% done.*$\n?", "", text)  # progress depends on the clock
    return "\n".join(line.rstrip() for line in text.splitlines())


def main() -> None:
    """Record the runs, or compare them with what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(RUNS), help="compare these runs alone; all are made")
    parser.add_argument("--lines", type=int, default=12, help="how many lines of a difference to show")
    given = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        prepare(folder)
        for name in RUNS:
            texts, place = run(folder, name), given.folder / name
            if given.what == "record":
                place.mkdir(parents=True, exist_ok=True)
                for file, text in texts.items():
                    (place / file).write_text(text, encoding="utf-8")
                print(f"{name}: {len(texts)} texts, {texts['stdout.txt'].splitlines()[0]}")
            elif not given.only or name in given.only:
                recorded = {path.name: path.read_text(encoding="utf-8") for path in place.iterdir()}
                for file in sorted(texts.keys() | recorded.keys()):
                    old, new = (held.get(file, "").splitlines() for held in (recorded, texts))
                    change = [
                        line for line in difflib.unified_diff(old, new, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
                    ]
                    different += bool(change)
                    for line in change[: given.lines] + [f"… {len(change)} lines"] * (len(change) > given.lines):
                        print(f"{name}/{file}: {line}")
    if given.what == "compare":
        print(f"{different} texts differ")
        raise SystemExit(different > 0)


if __name__ == "__main__":
    main()
