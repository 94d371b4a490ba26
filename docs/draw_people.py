"""Draw the figures on 44 recorded participants, from a folder with their decisions (see the page for how to get them).

Run: python docs/draw_people.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import multihorizon as mh
from multihorizon.analysis import Analysis
from multihorizon.data.side_tables import read_known_reward, read_transitions

sys.path.insert(0, str(Path(__file__).parent))
from charts import COLOURS, Chart, Scale

BLUE, ORANGE, PURPLE, GREEN = COLOURS


def fits(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Each participant's estimates, over all rounds and under each kind of rounds."""
    mdp = read_transitions(folder / "transitions.csv")
    frame = pd.read_csv(folder / "decisions.csv", dtype=str)
    frame["step"] = frame["step"].astype(int)
    frame["noise"] = frame["state"].str.split().str[1]
    table = mh.Demonstrations.from_frame(frame, conditions=["noise"])

    def known(task: mh.MDP) -> np.ndarray:
        return read_known_reward(folder / "features_points.csv", task)

    def fit(formula: str) -> Analysis:
        solver = mh.Population(formula, reference={"noise": "low"} if "noise" in formula else None)
        return mh.analyse([table], [mdp], population=solver, known_reward=known, quick=True)

    return fit("~ 1").to_frame(), fit("~ noise + (noise | expert)").conditions_frame()


def horizons(people: pd.DataFrame) -> None:
    """Individual and shrinkage estimates, from the shortest horizon to the longest."""
    chart = Chart(
        640,
        300,
        "Discount factors of 44 participants, without pooling and partially pooled; quartiles are in the table below",
    )
    people = people.sort_values("shrunken_discount").reset_index(drop=True)
    across, up = (
        Scale(0, 45, 80, 500, (1, 10, 20, 30, 44)),
        Scale(0.3, 1, 250, 20, (0.4, 0.6, 0.8, 1)),
    )
    chart.axes(across, up, "participants, sorted", "discount factor γ")
    for place, row in enumerate(people.itertuples(), start=1):
        low, high = row.shrunken_low, row.shrunken_high
        chart.line(
            [(across(place), up(max(low, 0.3))), (across(place), up(high))], BLUE, 2, opacity=0.35
        )
        chart.dot(
            across(place), up(row.discount), ORANGE, 3, True, f"{row.expert}: {row.discount:.2f}"
        )
        chart.dot(
            across(place),
            up(row.shrunken_discount),
            BLUE,
            3,
            says=f"{row.expert}: {row.shrunken_discount:.2f}",
        )
    chart.dot(512, 120, BLUE)
    chart.text(522, 124, "partially pooled,")
    chart.text(522, 140, "with 95% intervals")
    chart.dot(512, 166, ORANGE, 3, True)
    chart.text(522, 170, "no pooling")
    chart.write("people-horizons")


def conditions(rows: pd.DataFrame) -> None:
    """Shrinkage estimates without asteroids and with them, joined for each participant."""
    chart = Chart(
        640,
        300,
        "Discount factors of 44 participants without asteroids and among them: most lines fall",
    )
    up = Scale(0.1, 1, 250, 20, (0.2, 0.4, 0.6, 0.8, 1))
    across = Scale(0, 1, 120, 460, ())
    chart.axes(across, up, "", "discount factor γ")
    wide = rows.pivot(index="expert", columns="condition_noise", values="shrunken_discount").astype(
        float
    )
    for person, row in wide.iterrows():
        colour = BLUE if row["high"] < row["low"] else ORANGE
        chart.line(
            [(across(0.15), up(row["low"])), (across(0.85), up(row["high"]))],
            colour,
            1.2,
            opacity=0.6,
        )
        for x, kind in ((0.15, "low"), (0.85, "high")):
            chart.dot(across(x), up(row[kind]), colour, 3, says=f"{person}: {row[kind]:.2f}")
    chart.text(across(0.15), 270, "without asteroids", "middle")
    chart.text(across(0.85), 270, "among asteroids", "middle")
    fall = int((wide["high"] < wide["low"]).sum())
    chart.text(475, 120, f"shorter horizon: {fall}", more=f"fill:{BLUE}")
    chart.text(475, 142, f"longer horizon: {len(wide) - fall}", more=f"fill:{ORANGE}")
    chart.write("people-conditions")


def false_alarms() -> None:
    """Rejections in 40 random assignments, as on the page."""
    chart = Chart(640, 120, "Rejections in 40 random assignments: 3 and 17, where 2 are expected")
    across = Scale(0, 20, 220, 600, (0, 5, 10, 15, 20))
    for tick in across.ticks:
        chart.line([(across(tick), 8), (across(tick), 80)], "currentColor", 0.5, opacity=0.25)
        chart.text(across(tick), 98, f"{tick:g}", "middle")
    chart.text(410, 116, "rejections at 5% in 40 random assignments", "middle")
    for place, (words, value, colour) in enumerate(
        (("participants as the unit", 3, BLUE), ("each group as one expert", 17, ORANGE))
    ):
        y = 14 + 36 * place
        chart.text(210, y + 16, words, "end")
        chart.bar(across(0), y, across(value) - across(0), 22, colour, f"{value} of 40")
        chart.text(across(value) + 8, y + 16, str(value))
    chart.line([(across(2), 8), (across(2), 80)], "currentColor", 1.5, "4 3")
    chart.write("people-false-alarms")


def calibration() -> None:
    """Predicted and recorded shares of jumps among asteroids, as in the table on the page."""
    chart = Chart(640, 320, "Recorded by predicted share of jumps; the numbers are in the table")
    across, up = (
        Scale(0, 1, 80, 340, (0, 0.25, 0.5, 0.75, 1)),
        Scale(0, 1, 270, 20, (0, 0.25, 0.5, 0.75, 1)),
    )
    chart.axes(across, up, "predicted probability of a jump", "recorded share")
    chart.line([(across(0), up(0)), (across(1), up(1))], "currentColor", 1, "4 3", 0.6)
    shares = (
        (1602, 0.074, 0.051),
        (696, 0.295, 0.264),
        (770, 0.513, 0.555),
        (1057, 0.690, 0.758),
        (1256, 0.919, 0.896),
    )
    for count, expected, recorded in shares:
        chart.dot(
            across(expected),
            up(recorded),
            BLUE,
            5,
            says=f"{count:,} decisions: predicted {expected}, recorded {recorded}",
        )
    chart.text(360, 130, "5,381 decisions among asteroids,")
    chart.text(360, 148, "predicted from rounds without them")
    chart.write("people-calibration")


def prediction() -> None:
    """Held-out log-likelihoods over ten random splits, as in the table on the page."""
    chart = Chart(
        640, 190, "Held-out log-likelihoods of four estimates; the numbers are in the table"
    )
    across = Scale(-4270, -4110, 230, 600, (-4250, -4200, -4150))
    for tick in across.ticks:
        chart.line([(across(tick), 8), (across(tick), 140)], "currentColor", 0.5, opacity=0.25)
        chart.text(across(tick), 158, f"{tick:,}".replace("-", "−"), "middle")
    chart.text(415, 182, "held-out log-likelihood (mean and range of ten splits)", "middle")
    estimates = (
        ("complete pooling", -4227, -4259, -4187, ORANGE),
        ("no pooling", -4207, -4234, -4141, ORANGE),
        ("partial pooling, estimates", -4156, -4174, -4121, BLUE),
        ("partial pooling, averages", -4129, -4136, -4117, BLUE),
    )
    for place, (words, mean, low, high, colour) in enumerate(estimates):
        y = 24 + 33 * place
        chart.text(220, y + 4, words, "end")
        chart.line([(across(low), y), (across(high), y)], colour, 2)
        chart.dot(across(mean), y, colour, 5, says=f"{words}: {mean:,}")
    chart.write("people-prediction")


if __name__ == "__main__":
    everyone, apart = fits(Path(sys.argv[1]))
    horizons(everyone)
    conditions(apart)
    false_alarms()
    prediction()
    calibration()
