"""``bitl fit``, ``bitl sample`` and ``bitl tune``: from a table to a model, a posterior, an epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from .options import PROBLEM, DataOptions, OutputOptions, ProblemOptions, command_line, expand, say, written
from .terminal import console, share_progress, waiting

Epsilon = Annotated[
    float,
    typer.Option(
        help="How far from the best action the experts stray, in units of value.",
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]


def _open(settings: Any, output: OutputOptions) -> tuple[Any, Any]:
    """Read the case and open its folder, so that nothing long is done in vain."""
    from ..analysis.case import read_case
    from ..analysis.folder import Folder, check_writable

    if output.out is not None:
        check_writable(output.out)
    case = read_case(settings)
    return case, None if output.out is None else Folder.create(output.out, case, replace=output.replace)


def _content(case: Any, step: str, summary: dict[str, Any]) -> dict[str, Any]:
    from ..analysis.folder import versions

    return {
        "command": command_line(),
        "versions": versions(),
        "settings": case.settings.as_dict(),
        "data": dict(case.about),
        step: summary,
    }


@expand
def fit(
    data: DataOptions,
    problem: ProblemOptions,
    epsilon: Epsilon,
    output: OutputOptions,
    method: Annotated[str, typer.Option(help="itl, mle, mce or joint (the reward is then a first guess).")] = "itl",
) -> None:
    """The model closest to the data in which the experts' choices make sense, with its certificate."""
    from ..analysis.folder import ESTIMATE, save_estimate
    from ..analysis.steps import fit as run
    from ..analysis.steps import method_name

    method_name(method)
    case, folder = _open(problem.settings(data, epsilon), output)
    _keep(folder, "fit", method_name(method), output.replace)
    with waiting(f"fitting {method} ..."):
        step = run(case, method, seed=output.seed)
    if folder is not None:
        folder.begin()
        save_estimate(folder.path / ESTIMATE, step.learned, case)  # type: ignore[arg-type]
        folder.record("fit", step.summary, command_line())
    certificate = step.summary["certificate"]

    def people() -> None:
        say(f"{step.summary['method']}: {certificate['words']}")
        if certificate["leaves_support"]:
            names = ", ".join(certificate["leaves_support"][:5])
            number = len(certificate["leaves_support"])
            where = "1 state" if number == 1 else f"{number} states"
            say(f"Its best action is not one of the experts' in {where}: {names}{', ...' if number > 5 else ''}.")
        loss = step.summary["loss"]
        say((f"Loss {loss:.4g}. " if loss is not None else "") + f"{step.summary['seconds']:.2f} s.")
        written(output.out, ["estimate.npz", "problem.npz", "summary.json"])

    output.show(_content(case, "fit", step.summary), people)


@expand
def sample(
    data: DataOptions,
    problem: ProblemOptions,
    epsilon: Epsilon,
    output: OutputOptions,
    method: Annotated[str, typer.Option(help="bitl, or ps, which does not know of the experts.")] = "bitl",
    draws: Annotated[int, typer.Option(help="Number of models to draw, rounded up to equal runs.")] = 1000,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds in each of BITL's four runs; more is better [default: the sampler's].")
    ] = None,
) -> None:
    """How sure can one be? Models that fit the data and the experts, drawn by how probable they are."""
    from .. import _validate
    from ..analysis.folder import POSTERIOR, save_posterior
    from ..analysis.steps import method_name
    from ..analysis.steps import sample as run

    method_name(method)
    if output.out is not None:
        _validate.arviz("Writing a posterior")
    case, folder = _open(problem.settings(data, epsilon), output)
    _keep(folder, "sample", method_name(method), output.replace)
    with share_progress(f"drawing {draws} models") as progress:
        step = run(
            case, method, draws=draws, seed=output.seed, rounds=rounds, workers=output.workers, progress=progress
        )
    if folder is not None:
        folder.begin()
        save_posterior(folder.path / POSTERIOR, step.learned)  # type: ignore[arg-type]
        folder.record("sample", step.summary, command_line())

    output.show(_content(case, "sample", step.summary), lambda: _show_sample(step.summary, output.out))


@expand
def tune(
    data: DataOptions,
    problem: ProblemOptions,
    output: OutputOptions,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="An epsilon to try, repeated; by default eight from the data.", rich_help_panel=PROBLEM),
    ] = None,
    transfer: Annotated[
        list[Path] | None, typer.Option(help="A reward file of another goal to match as well, repeated.")
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts, of which each is held out once.")] = 5,
    evidence: Annotated[bool, typer.Option(help="Estimate the evidence of every epsilon too.")] = True,
    rounds: Annotated[int, typer.Option(help="Rounds per run for the evidence.")] = 2000,
) -> None:
    """Which epsilon fits: by decisions held out, and by the evidence of the posterior."""
    from ..analysis import figures
    from ..analysis.case import read_case
    from ..analysis.folder import check_writable, write_json, write_rows
    from ..analysis.tune import default_epsilons
    from ..analysis.tune import tune as run
    from ..report import style
    from ..tables import read_reward

    if output.out is not None:
        check_writable(output.out)
    case = read_case(problem.settings(data, 1.0))  # read_case asks for one; any will do here
    goals = {path.stem: case.task.with_reward(read_reward(path).reward(case.labels)) for path in transfer or ()}
    values = epsilon or default_epsilons(case)
    with share_progress(f"trying {len(values)} epsilons") as progress:
        result = run(
            case,
            values,
            folds=folds,
            seed=output.seed,
            transfer=goals,
            rounds=rounds if evidence else None,
            workers=output.workers,
            on_epsilon=lambda done: progress(done / len(values)),
        )
    content = _content(case, "tune", {**result.as_dict(), "seed": output.seed})
    del content["settings"]["epsilon"]
    if output.out is not None:
        style.save(figures.draw_tuning(result), output.out / "tune")
        write_rows(output.out / "tune.csv", result.rows())
        write_json(output.out / "tune.json", content)

    output.show(content, lambda: _show_tuning(result, output.out))


def _keep(folder: Any, step: str, method: str, replace: bool) -> None:
    """Raise if a folder already holds the result of another method: nothing is lost silently."""
    from ..errors import DataError

    known = None if folder is None else folder.summary.get(step)
    if known is not None and known["method"] != method and not replace:
        raise DataError(
            f"{folder.path} already holds {known['method']}; choose another folder for {method}, or add --replace."
        )


def _show_sample(s: dict[str, Any], out: Path | None) -> None:
    say(f"{s['method']}: {s['draws_without_violation']} of {s['draws']} draws satisfy every constraint.")
    rhat = "R-hat cannot be given" if s["rhat"] is None else f"R-hat at most {s['rhat']:.3f}"
    say(f"{rhat}, at least {s['ess'] or 0:.0f} effective draws; {s['seconds']:.1f} s.")
    for warning in s["warnings"]:
        say(warning)
    if s.get("log_evidence") is not None:
        evidence = f"{s['log_evidence']:.2f} ± {s['log_evidence_se']:.2f}"
        say(f"Log evidence that the experts are epsilon-optimal: {evidence}.")
    say(f"Bayesian regret: {s['regret']['value']:.4g} ± {s['regret']['standard_error']:.2g}.")
    written(out, ["posterior.nc", "problem.npz", "summary.json"])


def _show_tuning(result: Any, out: Path | None) -> None:
    console.print(_tune_grid(result), markup=False)
    for row in result.rows():
        if row["refused"]:
            say(f"epsilon {row['epsilon']:g}: {row['refused']}")
    say(result.words)
    written(out, ["tune.csv", "tune.json", "tune.png", "tune.svg"])


def _tune_grid(result: Any) -> Grid:
    grid = Grid(title=f"Held-out matching, {result.folds} folds by {result.by}", title_justify="left")
    heads = ["epsilon", "score", "most frequent", "a valid one"] + (["log evidence"] if result.evidence else [])
    for head in heads:
        grid.add_column(head, justify="right")
    for row in result.rows():
        cells = [f"{row['epsilon']:g}"]
        cells += [_number(row[key]) for key in ("score", "best_matching_standard", "epsilon_matching_standard")]
        if result.evidence:
            known = row["log_evidence"] is not None
            cells.append(f"{row['log_evidence']:.1f} ± {row['log_evidence_se'] or 0:.1f}" if known else "–")
        grid.add_row(*cells)
    return grid


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"
