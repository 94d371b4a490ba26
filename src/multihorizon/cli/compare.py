"""`multihorizon compare`: is a horizon the person's or the situation's? Fitted under one condition, it predicts another."""

from __future__ import annotations

from multihorizon.cli.console import checked, out, progress_bar, read_decisions, read_options, read_study, show_remarks
from multihorizon.cli.options import CompareOptions
from multihorizon.data.side_tables import read_known_reward
from multihorizon.questions.carrying_over import CarryingOver, carry_over
from multihorizon.report.pages import COMPARED, carried_table, write_comparison


def compare(options: CompareOptions) -> None:
    """Say whether a horizon belongs to the person or to the situation: fit under one condition, predict the other.

    What is fitted under each condition predicts the same persons' decisions under the others: their own horizons, one discount
    for everybody, and chance.
    """
    with checked(options, COMPARED):
        tables, remarks = read_decisions(options, None)
        study = read_study(options, tables)
        known = None if options.known_reward is None else read_known_reward(options.known_reward, study.problem.mdp)
        with progress_bar("compare") as progress:
            found = carry_over(
                study.problem,
                condition=str(options.condition),
                known_reward=known,
                common_discount=options.common_discount,
                seed=options.seed,
                jobs=options.jobs,
                progress=progress,
            )
        _show(found)
        show_remarks([*study.remarks, *remarks])
        if options.out_dir is not None:
            recorded = {
                **read_options(options),
                "condition": options.condition,
                "episodes": options.episodes.name if options.episodes else None,
                "known_reward": options.known_reward.name if options.known_reward else None,
                "common_discount": options.common_discount,
                "seed": options.seed,
            }
            write_comparison(options.out_dir, found, recorded, [*study.remarks, *remarks])
            out.print(f"Written to {options.out_dir}: {', '.join(COMPARED)}", soft_wrap=True)


def _show(found: CarryingOver) -> None:
    # The columns that fit on a terminal; the page has all.
    shown = carried_table(found).select("from", "to", "own", "one_discount", "chance", "gain", "gain_low", "gain_high")
    out.print(shown.rich())
    out.print(found.sentences(), soft_wrap=True)
