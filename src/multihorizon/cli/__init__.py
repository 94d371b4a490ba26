"""The program `multihorizon`: a thin skin over the library.

The options of a command are a frozen dataclass; arguments of the program are made of its fields. The function that carries the
command out stands in another module of `cli/`, which is imported when the command is called, so that no help waits for what the
work needs. What a command does is shown in the words of its function's docstring, read from the source.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import multihorizon


def path(text: str | Path) -> Path:
    """Return a path as it was typed, with ~ and .. followed, as a shell does for some options and not for others (`--out=~/x`).

    An empty one, such as an unset variable of the shell gives, must not mean the current folder.
    """
    if not str(text).strip():
        raise typer.BadParameter("got an empty name: type that of a file or folder")
    typed = Path(os.path.expanduser(text))
    if str(typed).startswith("~") and not typed.exists():
        raise typer.BadParameter(f"got {text}, where {typed.parts[0]} is the home of nobody: write ./{text} for a name with ~")
    return Path(os.path.relpath(os.path.realpath(typed))) if ".." in typed.parts else typed


def file(option: str, text: str) -> Any:
    """Return an option that takes a file or a folder."""
    return typer.Option(option, parser=path, help=text, metavar="FOLDER" if option in ("--out", "--pilot") else "FILE")


Demos = Annotated[
    list[Path],
    typer.Argument(
        metavar="TABLES",
        parser=path,
        help="CSV or Parquet: expert, episode, step, state, action[, next_state]; one file, or one folder of files, per task.",
    ),
]
OwnColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN,…",
        help="What columns are called in TABLES: expert=person,episode=walk,state=row+column,action=move; + joins several.",
    ),
]
Transitions = Annotated[
    list[Path] | None,
    file("--transitions", "npz of MDP.to_npz, or CSV: state, action, next_state, probability; once for each table."),
]
Features = Annotated[Path | None, file("--features", "CSV: state[, action], then one column per feature of the reward.")]
TemperatureChoice = Annotated[
    list[str] | None,
    typer.Option(
        "--temperature",
        metavar="CHOICE|[NAME=]VALUE",
        help="How random choices are: pooled (the default: equal unless the decisions reject that), shared, per-expert, or a "
        "known number, of one expert or of all; NAME=VALUE may be repeated.",
    ),
]
Smoothing = Annotated[
    float | None,
    typer.Option(
        "--smoothing",
        help="Moves added to each state and action when transitions are estimated; default 0.5, or 0 where none ever differed.",
        show_default=False,
    ),
]
EstimateRest = Annotated[
    bool,
    typer.Option("--estimate-rest", help="Estimate from next_state the actions and states that --transitions leaves out."),
]
Believed = Annotated[
    bool,
    typer.Option("--believed", help="--transitions are what people believe: where moves led may contradict them."),
]
SameTask = Annotated[
    bool, typer.Option("--same-task", help="All TABLES are parts of one table of one task, like the files of a folder.")
]
CutOff = Annotated[
    bool,
    typer.Option("--cut-off", help="Episodes may simply stop: a last decision without next_state counts, whatever followed."),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="COLUMN",
        help="The column of the decisions that says when each was made: moves take time, and discounts are per unit of it.",
    ),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(
        "--time-unit", metavar="UNIT", help="Where --time holds dates: second, minute, hour, day or week. It changes no answer."
    ),
]
Ridge = Annotated[float | None, typer.Option("--ridge", help="Weight of a penalty on large rewards; by default none is needed.")]
DeviationsChoice = Annotated[
    str,
    typer.Option(
        "--deviations",
        metavar="[estimated|0|NUMBER]",
        help="How far each expert's reward may be from the shared one: estimated, 0 for one reward, or a standard deviation.",
    ),
]
Discounts = Annotated[
    list[str] | None,
    typer.Option("--discount", metavar="[NAME=]VALUE", help="A known discount, of one expert or of all; may be repeated."),
]
KnownReward = Annotated[
    Path | None,
    file("--known-reward", "CSV: state[, action], then one column with the reward that is known."),
]
Groups = Annotated[Path | None, file("--groups", "CSV: expert, group; the experts of one group share one discount.")]
PersonsFile = Annotated[
    Path | None,
    file("--persons", "CSV or Parquet: expert, then covariates, one row per person; use with --formula."),
]
EpisodesFile = Annotated[
    Path | None,
    file("--episodes", "CSV or Parquet: expert, episode, then conditions, one row per episode."),
]
Formula = Annotated[
    str | None,
    typer.Option(
        "--formula",
        metavar="FORMULA",
        help="What discounts may depend on, as in R: columns of --persons, of --episodes, or of the decisions themselves: "
        '"~ group + noise".',
    ),
]
MissingChoice = Annotated[
    str,
    typer.Option(
        "--missing",
        metavar="drop|fail",
        help="People without a row or a value in --persons, or alone in their group, and decisions under an unknown condition: "
        "leave them out and say so, or stop.",
    ),
]
Reference = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", metavar="COLUMN=GROUP", help="The group that the others are compared with; once for each column of groups."
    ),
]
DistributionChoice = Annotated[
    str,
    typer.Option(
        "--distribution",
        metavar="normal|free|types",
        help="How people are distributed around the covariates: normally, or freely, which shows their types as well. With "
        "types, each person is of one of a few, or each episode, where the decisions have no column expert.",
    ),
]
Types = Annotated[
    int | None,
    typer.Option("--types", help="How many types there are, with --distribution types; by default as many as tests find."),
]
StateColumns = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="X1,X2,…", help="The columns of numbers that are the state; where actions lead is then learned."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Leave out tests and model checks; take intervals from standard errors.")]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes to use; -1 is all cores. The answer does not depend on it.")]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Work on a Dask cluster, in place of --jobs: tcp://host:8786."),
]
ClusterBy = Annotated[
    str,
    typer.Option(
        "--cluster-by",
        metavar="auto|decision|episode|expert",
        help="What standard errors, intervals and tests take to be independent: by default episodes, if choices of one episode "
        "go together more than their states explain, else decisions; expert needs --groups that share discounts.",
    ),
]
ValueChoice = Annotated[
    str,
    typer.Option(
        "--value",
        metavar="soft|max|mean",
        help="How people value the future: with entropy, by the best action, or by the choices they will make.",
    ),
]
LapseChoice = Annotated[
    str,
    typer.Option(
        "--lapse",
        metavar="NUMBER|estimated",
        help="The share of choices that are lapses, any of the available actions alike.",
    ),
]
StickinessChoice = Annotated[
    str,
    typer.Option(
        "--stickiness",
        metavar="NUMBER|estimated",
        help="How much more the last action is worth than others, in units of reward.",
    ),
]
Rivals = Annotated[
    bool,
    typer.Option("--rivals", help="Ask the same question under rival models of choice, which takes several fits."),
]
Pairs = Annotated[bool, typer.Option("--pairs", help="Compare every pair of experts, even of many.")]
LookaheadChoice = Annotated[
    str | None,
    typer.Option(
        "--lookahead",
        metavar="SHAPE|all",
        help="Compare shapes of look-ahead: depth, hyperbolic, quasi-hyperbolic, free-weights, or all of them.",
    ),
]
Recovered = Annotated[Path | None, file("--recovered", "recover.json of multihorizon recover, to be shown in the report.")]
Seed = Annotated[int, typer.Option("--seed", help="Fixes all randomness.")]
Effects = Annotated[
    list[float] | None,
    typer.Option("--effect", help="An effect of a covariate on the logit of the discount; the last one is that of other sizes."),
]
Term = Annotated[
    str | None, typer.Option("--term", metavar="TERM", help="The covariate's term in the formula, where there are several.")
]
Decisions = Annotated[
    list[int] | None,
    typer.Option("--decisions", help="A number of decisions per person to try; by default half and twice as many."),
]
People = Annotated[
    list[int] | None, typer.Option("--people", help="A number of people to try; by default half and twice as many.")
]


@dataclass(frozen=True)
class DemoOptions:
    """The options of `demo`."""

    out_dir: Annotated[Path, file("--out", "Where to write the picture, the table and the report.")] = Path("multihorizon-demo")


@dataclass(frozen=True)
class TableOptions:
    """What all commands take that read tables of decisions."""

    demos: Demos
    columns: OwnColumns = None
    transitions: Transitions = None
    features: Features = None
    smoothing: Smoothing = None
    estimate_rest: EstimateRest = False
    believed: Believed = False
    same_task: SameTask = False
    cut_off: CutOff = False
    time: TimeColumn = None
    time_unit: TimeUnit = None


@dataclass(frozen=True)
class ChoiceOptions(TableOptions):
    """What commands take that let one say how random choices are."""

    temperature: TemperatureChoice = None


@dataclass(frozen=True)
class CheckOptions:
    """The options of `check`."""

    demos: Demos
    columns: OwnColumns = None
    recode: Annotated[
        Path | None,
        file("--recode", "CSV: column, label, new_label; one vocabulary for the labels of several files. Use with --write."),
    ] = None
    transitions: Transitions = None
    believed: Believed = False
    same_task: SameTask = False
    state: StateColumns = None
    write: Annotated[
        Path | None,
        file("--write", "Where to write the table with everything fixed that needs no guessing."),
    ] = None
    out_dir: Annotated[Path | None, file("--out", "Where to write check.json and check.html.")] = None


@dataclass(frozen=True)
class FitOptions(ChoiceOptions):
    """The options of `fit`."""

    state: StateColumns = None
    discount: Discounts = None
    known_reward: KnownReward = None
    groups: Groups = None
    persons: PersonsFile = None
    episodes: EpisodesFile = None
    formula: Formula = None
    missing: MissingChoice = "drop"
    reference: Reference = None
    distribution: DistributionChoice = "normal"
    types: Types = None
    ridge: Ridge = None
    deviations: DeviationsChoice = "estimated"
    cluster_by: ClusterBy = "auto"
    lookahead: LookaheadChoice = None
    value: ValueChoice = "soft"
    lapse: LapseChoice = "0"
    stickiness: StickinessChoice = "0"
    recovered: Recovered = None
    pairs: Pairs = False
    rivals: Rivals = False
    quick: Quick = False
    jobs: Jobs = 1
    cluster_at: Cluster = None
    seed: Seed = 0
    trials: Annotated[
        bool,
        typer.Option(
            "--trials", help="Write trials.csv: probability, values and prediction error of each decision. Use with --out."
        ),
    ] = False
    out_dir: Annotated[Path | None, file("--out", "Where to write results and the report.")] = None


@dataclass(frozen=True)
class CompareOptions(TableOptions):
    """The options of `compare`."""

    condition: Annotated[
        str | None,
        typer.Option(
            "--condition",
            metavar="COLUMN",
            help="A column of the decisions or of --episodes: the condition of each episode, as groups.",
        ),
    ] = None
    episodes: EpisodesFile = None
    known_reward: KnownReward = None
    common_discount: Annotated[
        float | None,
        typer.Option("--common-discount", help="The discount for everybody to compare with; by default it is estimated."),
    ] = None
    jobs: Jobs = 1
    cluster_at: Cluster = None
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write compare.json, compare.csv and compare.html.")] = None


@dataclass(frozen=True)
class GoalsOptions(ChoiceOptions):
    """The options of `goals`."""

    simulations: Annotated[int, typer.Option("--simulations", help="Tables drawn to test one reward for all.")] = 999
    cluster_by: ClusterBy = "auto"
    jobs: Jobs = 1
    cluster_at: Cluster = None
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write goals.json and goals.html.")] = None


@dataclass(frozen=True)
class IdentifyOptions(ChoiceOptions):
    """The options of `identify`."""

    known_reward: KnownReward = None
    within: Annotated[
        float | None,
        typer.Option("--within", help="How far a reward may be from the shared one: which discounts are possible then?"),
    ] = None
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write identify.json and identify.html.")] = None


PILOT_HELP = "The folder of a fit, as multihorizon fit --out wrote it"


@dataclass(frozen=True)
class RecoverOptions(ChoiceOptions):
    """The options of `recover`."""

    demos: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[TABLES]", parser=path, help="The decisions of the study, as for fit; or give --pilot."),
    ] = None  # type: ignore[assignment]
    pilot: Annotated[Path | None, file("--pilot", f"{PILOT_HELP}: the truth of a study that --schedule plans.")] = None
    schedule: Annotated[
        Path | None, file("--schedule", "schedule.csv of multihorizon design: what each person is given; use with --pilot.")
    ] = None
    known_reward: KnownReward = None
    persons: PersonsFile = None
    episodes: EpisodesFile = None
    formula: Formula = None
    missing: MissingChoice = "drop"
    reference: Reference = None
    effect: Effects = None
    term: Term = None
    decisions: Decisions = None
    people: People = None
    studies: Annotated[int, typer.Option("--studies", help="Simulated studies of each size.")] = 100
    ridge: Ridge = None
    jobs: Jobs = 1
    cluster_at: Cluster = None
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write results and the report.")] = None


@dataclass(frozen=True)
class DesignOptions:
    """The options of `design`."""

    pilot: Annotated[Path, file("--pilot", f"{PILOT_HELP}: what people are expected to be like.")]
    transitions: Annotated[
        list[Path] | None, file("--transitions", "The task, as for fit, once for each task; by default that of the pilot.")
    ] = None
    candidates: Annotated[
        Path | None,
        file(
            "--candidates",
            "CSV: state[, candidate, task, length, episodes, most, cost]; what a person can be given. By default each start.",
        ),
    ] = None
    features: Annotated[
        list[Path] | None, file("--features", "The features of tasks that the pilot does not know, once for each task.")
    ] = None
    persons: Annotated[int | None, typer.Option("--persons", help="How many take part; by default as many as in the pilot.")] = (
        None
    )
    decisions: Annotated[
        int | None,
        typer.Option("--decisions", help="How many decisions each person may be asked for; by default as many as in the pilot."),
    ] = None
    most_episodes: Annotated[
        int | None, typer.Option("--episodes", help="In place of --decisions: how many episodes each person may be asked for.")
    ] = None
    budget: Annotated[
        float | None, typer.Option("--budget", help="In place of --decisions: how much the candidates may cost for each person.")
    ] = None
    width: Annotated[
        float | None,
        typer.Option("--width", help="How many further episodes bring the widest interval of the pilot's people below this?"),
    ] = None
    difference: Annotated[
        float | None, typer.Option("--difference", help="A difference of logit discounts to say the power for.")
    ] = None
    term: Term = None
    draws: Annotated[
        int, typer.Option("--draws", help="Draws that stand for what the pilot leaves open; 1 takes it as it is.")
    ] = 16
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write design.json, design.csv, schedule.csv and design.html.")] = None


@dataclass(frozen=True)
class PredictOptions:
    """The options of `predict`."""

    result: Annotated[
        Path, typer.Argument(metavar="RESULT", parser=path, help="The folder that multihorizon fit --out RESULT wrote.")
    ]
    pay: Annotated[
        Path | None, file("--pay", "CSV: state[, action], amount; what is paid besides, on arrival or for the action.")
    ] = None
    forbid: Annotated[Path | None, file("--forbid", "CSV: state, action; what can no longer be done.")] = None
    transitions: Annotated[
        Path | None, file("--transitions", "The new task, as for fit; its states are those of the fit, or --features has them.")
    ] = None
    features: Annotated[
        Path | None, file("--features", "CSV: the features of the states of the new task, with the columns of the fit.")
    ] = None
    initial: Annotated[Path | None, file("--initial", "CSV: state, probability; where episodes begin.")] = None
    discount: Annotated[
        list[str] | None,
        typer.Option("--discount", metavar="[NAME=]VALUE", help="A new discount, of one expert or of all; may be repeated."),
    ] = None
    restrict: Annotated[
        Path | None,
        file(
            "--restrict",
            "CSV: smaller, larger, or state, lower, upper; what is known of the reward where many explain the policies.",
        ),
    ] = None
    reach: Annotated[
        list[str] | None,
        typer.Option("--reach", metavar="STATE", help="Say whether and when this state is reached; may be repeated."),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", help="Count outcomes over so many decisions: visits, the mean reward and, of numbers, the mean state."
        ),
    ] = None
    nudge: Annotated[
        str | None,
        typer.Option(
            "--nudge",
            metavar="STATE[:ACTION]",
            help="In place of a change: the smallest bonus with which each reaches or does it.",
        ),
    ] = None
    chance: Annotated[
        float | None,
        typer.Option("--chance", help="With --nudge: the probability to reach; default 0.5.", show_default=False),
    ] = None
    groups: Annotated[
        Path | None,
        file("--groups", "CSV: expert, group; with --nudge, the bonus that is enough for half and for 90% of each group."),
    ] = None
    typical: Annotated[
        bool, typer.Option("--typical", help="After a fit with --formula: a typical and a new person of each group.")
    ] = False
    jobs: Jobs = 1
    cluster_at: Cluster = None
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write the table, the numbers and the page: whatif.* or nudge.*.")] = (
        None
    )


@dataclass(frozen=True)
class RobustnessOptions:
    """The options of `robustness`."""

    result: Annotated[
        Path, typer.Argument(metavar="RESULT", parser=path, help="The folder that multihorizon fit --out RESULT wrote.")
    ]
    folds: Annotated[
        int, typer.Option("--folds", help="Into how many parts people are dealt, to predict each from the others.")
    ] = 5
    quick: Annotated[
        bool, typer.Option("--quick", help="Begin rivals at the fit alone, with intervals from standard errors.")
    ] = False
    jobs: Jobs = 1
    cluster_at: Cluster = None
    seed: Seed = 0
    out_dir: Annotated[Path | None, file("--out", "Where to write robustness.json, robustness.csv and robustness.html.")] = None


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of `reproduce`."""

    out_dir: Annotated[Path, file("--out", "Where the numbers, figures and the report go.")]
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="MODULE:NAME", help="Study a domain of your own, such as my_module:weaning.")
    ] = None
    quick: Annotated[bool, typer.Option("--quick", help="Fewer tasks, evaluations and grid points.")] = False
    jobs: Jobs = -1
    cluster_at: Cluster = None
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0


#: The options of each command, in the order of the help.
OPTIONS: dict[str, Any] = {
    "demo": DemoOptions,
    "check": CheckOptions,
    "fit": FitOptions,
    "goals": GoalsOptions,
    "compare": CompareOptions,
    "identify": IdentifyOptions,
    "recover": RecoverOptions,
    "design": DesignOptions,
    "predict": PredictOptions,
    "robustness": RobustnessOptions,
    "reproduce": ReproduceOptions,
}
#: What one may type to begin with.
EXAMPLES = {
    "demo": ("multihorizon demo", "multihorizon demo --out tour"),
    "check": (
        "multihorizon check decisions.csv",
        "multihorizon check decisions.csv --transitions moves.csv --out result",
        "multihorizon check decisions.csv --write fixed.csv",
        "multihorizon check a.csv b.csv --same-task --recode labels.csv --write both.csv",
    ),
    "fit": (
        "multihorizon fit decisions.csv --out result",
        "multihorizon fit decisions.csv --transitions moves.csv --out result",
        "multihorizon fit log.csv --columns expert=person,state=row+column --out result",
        "multihorizon fit decisions.csv --features kinds.csv --jobs -1 --out result",
        "multihorizon fit steps.csv --state x,y --out result",
        "multihorizon fit log.csv --time when --time-unit hour --out result",
        "multihorizon fit decisions.csv --known-reward points.csv --discount Ann=0.9",
        "multihorizon fit decisions.csv --value max --lapse estimated",
        "multihorizon fit decisions.csv --rivals --out result",
        'multihorizon fit log.csv --persons p.csv --formula "~ site" --reference site=a',
        "multihorizon fit 1.csv 2.csv --transitions a.csv --transitions b.csv",
    ),
    "goals": (
        "multihorizon goals decisions.csv --out result",
        "multihorizon goals decisions.csv --transitions moves.csv --out result",
    ),
    "compare": (
        "multihorizon compare decisions.csv --condition noise --out result",
        "multihorizon compare log.csv --episodes blocks.csv --condition noise --jobs -1",
        "multihorizon compare log.csv --condition noise --known-reward points.csv",
    ),
    "identify": (
        "multihorizon identify decisions.csv --transitions moves.csv",
        "multihorizon identify 1.csv 2.csv --transitions a.csv --transitions b.csv",
        "multihorizon identify decisions.csv --transitions moves.csv --within 0.5",
    ),
    "recover": (
        "multihorizon recover decisions.csv --transitions moves.csv --studies 100",
        "multihorizon recover decisions.csv --decisions 100 --people 50 --out plan",
        'multihorizon recover log.csv --persons who.csv --formula "~ group" --effect 1',
        'multihorizon recover log.csv --formula "~ noise" --effect 0.5 --people 60',
        "multihorizon recover --pilot result --schedule design/schedule.csv",
    ),
    "design": (
        "multihorizon design --pilot result --episodes 200 --out design",
        "multihorizon design --pilot result --candidates blocks.csv --persons 60",
        "multihorizon design --pilot result --difference 0.5 --out design",
        "multihorizon design --pilot result --width 0.1",
    ),
    "predict": (
        "multihorizon predict result --pay pay.csv --out whatif",
        "multihorizon predict result --forbid closed.csv --discount Ann=0.9",
        "multihorizon predict result --transitions new.npz --rounds 50",
        "multihorizon predict result --transitions new.npz --restrict rising.csv",
        "multihorizon predict result --nudge feast --chance 0.8",
    ),
    "robustness": ("multihorizon robustness result --out rivals", "multihorizon robustness result --quick"),
    "reproduce": (
        "multihorizon reproduce --out study --quick",
        "multihorizon reproduce --out study",
    ),
}


#: The commands in the order of the help.
COMMANDS = tuple(OPTIONS)

#: In which panel of the help the options of commands stand that read tables of decisions.
PANELS = {
    name: panel
    for panel, names in {
        "Input": "columns transitions smoothing estimate_rest believed same_task cut_off time time_unit state pilot schedule",
        "Model": "features temperature discount known_reward ridge deviations lookahead value lapse stickiness within",
        "Groups": "groups persons episodes formula missing reference distribution types condition",
        "Inference": "cluster_by common_discount pairs rivals quick simulations effect term decisions people studies jobs "
        "cluster_at seed",
        "Output": "recovered trials out_dir help",
    }.items()
    for name in names.split()
}


def _home(name: str) -> str:
    """Return the module of a command."""
    return "fit" if name in ("demo", "check", "fit") else "reproduce" if name == "reproduce" else "questions"


def _plain(params: list[Any]) -> list[Any]:
    """Return options whose help says what to type after them: a number if they do not say it, and nothing after a switch."""
    for option in params:
        if option.metavar is None:
            option.metavar = "" if getattr(option, "is_flag", False) else "NUMBER"
    return params


class PanelCommand(TyperCommand):
    """A command whose help shows its options in panels."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, each with its panel."""
        params = _plain(super().get_params(ctx))
        if issubclass(OPTIONS[str(self.name)], TableOptions):
            for option in params:
                option.rich_help_panel = PANELS.get(str(option.name))
        return params


def load(name: str) -> Any:
    """Return a command with its options and its examples."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=PanelCommand, help=_docstring(name), epilog=_paragraphs("Examples:", *EXAMPLES[name]))(
        _with_arguments(name)
    )
    return get_command(single)


def _with_arguments(name: str) -> Callable[..., None]:
    """Return a function that has a command's options as its arguments, and imports the command's module when it is called."""
    declared = OPTIONS[name]

    def run(**given: Any) -> None:
        getattr(import_module(f"{__name__}.{_home(name)}"), name)(declared(**given))

    hints = get_type_hints(declared, include_extras=True)
    run.__annotations__ = hints
    signature = inspect.signature(declared)
    arguments = [argument.replace(annotation=hints[argument.name]) for argument in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return run


def _docstring(name: str) -> str | None:
    """Return the docstring of a command's function, without importing its module."""
    source = Path(__path__[0], f"{_home(name)}.py")
    functions = ast.parse(source.read_text(encoding="utf-8")).body
    return next(ast.get_docstring(node) for node in functions if isinstance(node, ast.FunctionDef) and node.name == name)


def _paragraphs(*lines: str) -> str:
    """Return lines as typer shows them one below the other."""
    return "\n\n".join(lines)


class LoadingGroup(TyperGroup):
    """The program: its commands are placeholders with a name and a docstring until one is called."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the program."""
        return _plain(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is called, loaded; its name and the rest of the arguments."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder if name is None else load(name), rest


app = typer.Typer(
    name="multihorizon",
    cls=LoadingGroup,
    help="Infer the reward several experts share, and how far ahead each of them plans.",
    epilog=_paragraphs(
        "Examples:",
        "multihorizon demo",
        "multihorizon check decisions.csv",
        "multihorizon fit decisions.csv --out result",
        "multihorizon fit decisions.csv --transitions moves.csv --out result",
        "Each command has examples of its own: multihorizon fit --help",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _placeholder() -> None:
    """Stands for a command that has not been called."""


for _name in COMMANDS:
    app.command(_name, help=_docstring(_name))(_placeholder)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(multihorizon.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Infer the reward several experts share, and how far ahead each of them plans."""


def main() -> None:
    """Entry point of the console script."""
    least = 1 << 30
    try:
        resource: Any = import_module("resource")
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except ImportError:  # on Windows
        limit = -1
    if 0 <= limit < least:  # linear algebra waits for ever for memory that it cannot have
        typer.echo(
            f"multihorizon: there must be a gigabyte of memory for this program, and ulimit -v allows {limit >> 20} MB", err=True
        )
        raise SystemExit(2)
    app()
