"""The hypotension study on transitions of ICU stays: the paper's tables, epsilon tuning and counterfactuals.

Patients, not stays, are split: nothing is learned from those held out. Matching is judged on the held-out
patients, in the states they visit: against the action taken most often there (*best*) and the valid ones (*epsilon*).
The same against the patients that were learned from says whether a policy stays within what clinicians do. Values are
expected from the states in which stays begin, those of all patients; this weighs regret, and no method learns from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from .. import _validate, metrics
from .._types import FloatArray
from ..constraints import Constraints
from ..errors import BitlError, DataError, InfeasibleError, SamplingError, UndecidedError
from ..estimate import Estimate
from ..expert import ExpertActions
from ..icu.files import IcuBatch
from ..icu.rules import ACTIONS
from ..labels import Labels
from ..methods import Fit, Problem, methods
from ..methods import run as run_method
from ..posterior.posterior import Posterior
from ..report.next_states import NextStates, next_states
from ..task import Task
from ..transitions import Counts, Transitions
from ..tuning import EpsilonTuning, tune_epsilon

STUDY_METHODS = ("MLE", "ITL", "MCE", "PS", "BITL")
COUNTERFACTUAL = ("MLE", "ITL", "MCE", "BITL")
WITHOUT_EPSILON = ("MLE", "MCE", "PS")  # fitted once: epsilon is no part of what they learn
PAPERS_BINS, PAPERS_ACTION = (1, 1, 1, 2), 2  # the question of the paper's figure: a bolus in this state
QUESTIONS = 2
TUNED = (1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0)


@dataclass(frozen=True)
class Settings:
    """How the study is run."""

    epsilons: tuple[float, ...] = (5.0, 10.0, 15.0)
    tuned: tuple[float, ...] = TUNED  #: epsilons to try in tuning; empty to skip it
    methods: tuple[str, ...] = STUDY_METHODS
    validation: float = 0.2  #: share of the patients held out; 0 judges on the data that was learned from
    folds: int = 5
    share: float = 0.05  #: valid actions are taken in at least this share of the visits
    discount: float = 0.95
    draws: int = 1000
    rounds: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for epsilon in (*self.epsilons, *self.tuned):
            _validate.real(epsilon, "epsilon", low=0, ends="()")
        if not self.epsilons:
            raise DataError("The study needs at least one epsilon.")
        _validate.real(self.validation, "validation", low=0, high=1, ends="[)")
        for name in self.methods:
            _validate.one_of(name, "method", tuple(methods()))


@dataclass(frozen=True, eq=False)
class Study:
    """What the study found."""

    batch: IcuBatch
    settings: Settings
    task: Task
    transfer: Task | None
    train: Transitions
    held: Transitions
    expert: ExpertActions
    tuning: EpsilonTuning | None
    fits: Mapping[tuple[float, str], Fit]
    scores: Mapping[tuple[float, str], Mapping[str, float]]
    refusals: Mapping[tuple[float, str], str]
    questions: tuple[NextStates, ...] = ()
    asked: tuple[tuple[int, int], ...] = field(default=())  #: state and action of each question

    @property
    def num_constraints(self) -> int:
        """Number of constraints at the states that were learned from."""
        return len(Constraints.of(self.expert, self.task))


def run(
    batch: IcuBatch,
    *,
    settings: Settings | None = None,
    ask: Sequence[tuple[int | str, int | str]] = (),
    on_step: Callable[[str], None] = lambda _: None,
) -> Study:
    """Run the whole study on a batch.

    Parameters
    ----------
    batch
        From :func:`bitl.icu.build` or :func:`bitl.icu.read_transitions`; its scheme must have a reward "standard", and
        "transfer" if there is a transfer task.
    settings
        How it is run.
    ask
        Counterfactual questions, pairs of state and action; by default two about actions never taken in a visited
        state, the paper's if it is one and those about which ITL learned the most.
    on_step
        Told what is being done.
    """
    settings = settings or Settings()
    whole = batch.transitions
    task, transfer = _tasks(batch, settings)
    train, held = split(whole, settings.validation, settings.seed)
    expert = ExpertActions.at_least(train, share=settings.share)
    asked = [(whole.labels.state_id(s), whole.labels.action_id(a)) for s, a in ask]
    tuning = None
    if settings.tuned:
        on_step(f"tuning epsilon on {len(settings.tuned)} values, {settings.folds} folds")
        tuning = tune_epsilon(
            train,
            task=task,
            transfer=transfer,
            epsilons=settings.tuned,
            seed=settings.seed,
            folds=settings.folds,
            rule=partial(ExpertActions.at_least, share=settings.share),
        )
    fits, refusals = _fit_all(settings, train, task, expert, on_step)
    on_step("judging")
    scores = {
        (epsilon, name): _score(fit, epsilon, task, transfer, train, held, expert, settings.share)
        for (epsilon, name), fit in fits.items()
    }
    questions = asked or _questions(batch, train, expert, fits.get((settings.epsilons[0], "ITL")))
    answers = _answers(fits, settings.epsilons[0], questions)
    return Study(
        batch, settings, task, transfer, train, held, expert, tuning, fits, scores, refusals, answers, tuple(questions)
    )


def _fit_all(
    settings: Settings, train: Transitions, task: Task, expert: ExpertActions, on_step: Callable[[str], None]
) -> tuple[dict[tuple[float, str], Fit], dict[tuple[float, str], str]]:
    """Fit every method at every epsilon; a method that finds no model says why instead."""
    fits: dict[tuple[float, str], Fit] = {}
    refusals: dict[tuple[float, str], str] = {}
    for epsilon in settings.epsilons:
        for name in settings.methods:
            known = fits.get((settings.epsilons[0], name))
            if known is not None and name in WITHOUT_EPSILON:
                fits[epsilon, name] = known
                continue
            words = f"fitting {name} at epsilon {epsilon:g}"
            on_step(words)
            problem = Problem(
                train,
                task,
                epsilon,
                expert,
                settings.draws,
                settings.seed,
                rounds=settings.rounds,
                progress=partial(_told, on_step, words),
            )
            try:
                fits[epsilon, name] = run_method(name, problem)
            except (InfeasibleError, UndecidedError, SamplingError) as error:
                refusals[epsilon, name] = str(error)
    return fits, refusals


def _told(on_step: Callable[[str], None], words: str, share: float) -> None:
    on_step(f"{words}, {100 * share:.0f} % done")


def _tasks(batch: IcuBatch, settings: Settings) -> tuple[Task, Task | None]:
    """Return both tasks, with the states in which stays begin as their start."""
    scheme = batch.scheme
    order = np.lexsort((batch.step, batch.stay))
    first = order[np.unique(batch.stay[order], return_index=True)[1]]
    start = np.bincount(batch.state[first], minlength=scheme.num_states) / len(first)
    labels = Labels(scheme.labels, ACTIONS)
    task = Task(reward=scheme.reward("standard"), discount=settings.discount, start=start, labels=labels)
    return task, task.with_reward(scheme.reward("transfer")) if "transfer" in scheme.rewards else None


def split(batch: Transitions, validation: float, seed: int) -> tuple[Transitions, Transitions]:
    """Hold out a share of the episodes (here: patients); with a share of 0 both parts are the whole batch."""
    if validation == 0:
        return batch, batch
    if batch.episode is None:
        raise DataError("The batch has no patients to hold out; give it some, or use validation 0.")
    who, which = np.unique(batch.episode, return_inverse=True)
    number = max(1, round(validation * len(who)))
    if number >= len(who):
        raise DataError(f"There are {len(who)} patients, too few to hold out a share of {validation:g}.")
    rng = np.random.default_rng(_validate.seed_sequence(seed))
    chosen = np.zeros(len(who), dtype=np.bool_)
    chosen[rng.permutation(len(who))[:number]] = True
    out = chosen[which]
    return batch.where(~out), batch.where(out)


def _score(
    fit: Fit,
    epsilon: float,
    task: Task,
    transfer: Task | None,
    train: Transitions,
    held: Transitions,
    expert: ExpertActions,
    share: float,
) -> dict[str, float]:
    learned = fit.learned
    found = {"seconds": fit.seconds}
    for suffix, goal in (("", task), ("_transfer", transfer)):
        if goal is None:
            continue
        policy = metrics.learned_policy(learned, goal)
        for where, part in (("", held), ("_seen", train)):
            best, near = matching(policy, part.counts, share)
            found[f"best_matching{where}{suffix}"], found[f"epsilon_matching{where}{suffix}"] = best, near
        if isinstance(learned, Posterior):
            found["bayesian_regret" + suffix] = learned.regret(goal).value
    found["violations"] = metrics.violations(learned, task=task, expert=expert, epsilon=epsilon)
    if isinstance(learned, Posterior):
        diagnostics = learned.diagnostics()
        if np.isfinite(diagnostics.rhat).any():
            found["rhat"], found["ess"] = float(np.nanmax(diagnostics.rhat)), float(np.nanmin(diagnostics.ess))
    return found


def matching(policy: FloatArray, counts: Counts, share: float) -> tuple[float, float]:
    """Return the share of visited states where a policy takes the most frequent, and a valid, action of the data."""
    judge = ExpertActions.at_least(counts, share=share)
    favourite = (counts.visits == counts.visits.max(axis=1, keepdims=True)) & judge.valid
    where = judge.visited
    best, near = ((good * policy).sum(axis=1)[where].mean() for good in (favourite, judge.valid))
    return float(best), float(near)


def _questions(batch: IcuBatch, train: Transitions, expert: ExpertActions, itl: Fit | None) -> list[tuple[int, int]]:
    """Return two questions about visited states: the paper's, if it is one, and those on which ITL learned the most."""
    visits = train.counts.visits
    never = (visits == 0) & expert.visited[:, None]
    # how far ITL moved from knowing nothing; without it, how often the state was visited
    told = np.broadcast_to(visits.sum(axis=1, keepdims=True), visits.shape)
    if itl is not None:
        told = np.abs(itl.learned.T - 1 / batch.scheme.num_states).sum(axis=-1)
    found: dict[int, int] = {}
    if batch.scheme.shape == (3, 2, 2, 3):
        state = int(batch.scheme.encode(PAPERS_BINS))
        found |= {state: PAPERS_ACTION} if never[state, PAPERS_ACTION] else {}
    for flat in np.argsort(-np.where(never, told, -1.0), axis=None, kind="stable")[: never.sum()]:
        if len(found) < QUESTIONS:
            found.setdefault(*divmod(int(flat), visits.shape[1]))
    return list(found.items())


def _answers(
    fits: Mapping[tuple[float, str], Fit], epsilon: float, questions: Sequence[tuple[int, int]]
) -> tuple[NextStates, ...]:
    learned: dict[str, Estimate | Posterior] = {
        name: fits[epsilon, name].learned for name in COUNTERFACTUAL if (epsilon, name) in fits
    }
    return tuple(next_states(learned, state=s, action=a) for s, a in questions) if learned else ()


def warnings_of(study: Study) -> list[str]:
    """Return what a reader should know before believing the tables."""
    found = [f"{name} at epsilon {epsilon:g}: {why}" for (epsilon, name), why in study.refusals.items()]
    for (epsilon, name), fit in study.fits.items():
        if isinstance(fit.learned, Posterior) and not (
            name in WITHOUT_EPSILON and epsilon != study.settings.epsilons[0]
        ):
            found += [f"{name} at epsilon {epsilon:g}: {words}" for words in fit.learned.diagnostics().warnings]
    return found


def recommended(study: Study) -> str:
    """Say which epsilon the tuning recommends."""
    if study.tuning is None:
        return "Epsilon was not tuned."
    try:
        return f"Held-out matching recommends epsilon = {study.tuning.recommended:g}."
    except BitlError as error:
        return f"Held-out matching recommends no epsilon: {error}"
