"""The queries, written once as Ibis expressions for DuckDB and PostgreSQL alike.

Each event table is read once, and only what is needed of it leaves the engine: per stay, quantity and step one number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..discretize import Interval
from .rules import COLLOIDS, CRYSTALLOIDS, MEASURES, VARIABLES, VASOPRESSORS, Measure, Rules
from .source import Source

TIE = 10_000  # values are below this: of values charted in the same second the lowest counts
DIGITS = 6  # means are rounded, so that the order of adding up does not matter


def all_stays(source: Source) -> Any:
    """Return every ICU stay with the age at admission and the length in hours."""
    stays, patients = source.table("icustays"), source.table("patients")
    joined = stays.left_join(patients, "subject_id")  # a stay without a patient has no age, and is counted all the same
    seconds = _seconds(joined.outtime) - _seconds(joined.intime)
    return joined.select(
        "subject_id",
        "stay_id",
        "intime",
        "outtime",
        age=(joined.anchor_age + joined.intime.year() - joined.anchor_year).cast("float64"),
        hours=seconds.cast("float64") / 3600,
        order=_seconds(joined.intime).cast("float64"),
    )


def _seconds(time: Any) -> Any:
    """Return whole seconds since 1970; the engines themselves keep fractions."""
    return time.epoch_seconds().cast("float64").floor().cast("int64")


def eligible(source: Source, rules: Rules) -> Any:
    """Return the stays of the right age and length."""
    stays = all_stays(source)
    return stays.filter(
        stays.age >= rules.min_age,
        stays.age <= rules.max_age,
        stays.hours >= rules.min_hours,
    )


def values(source: Source, rules: Rules, table: str, limits: Mapping[str, Interval]) -> Any:
    """Return the values of an event table by stay, variable (a number) and step.

    ``limits`` are a scheme's, by column: values outside are no measurement either.

    Columns: stay_id, variable, step, value (by the rule ``within_step``), lowest, measured and refused (numbers of
    values inside and outside the limits).
    """
    measures = [measure for measure in MEASURES if measure.table == table]
    variable_of = {item: VARIABLES.index(measure.name) for measure in measures for item in measure.items}
    events, stays = source.table(table), eligible(source, rules)
    events = events.filter(events.itemid.isin(list(variable_of)), events.valuenum.notnull())
    joined = events.join(stays, "stay_id" if table == "chartevents" else "subject_id")
    timed = joined.select(
        "stay_id",
        variable=joined.itemid.cases(*variable_of.items(), else_=-1),
        elapsed=_seconds(joined.charttime) - _seconds(joined.intime),
        late=joined.charttime > joined.outtime,
        value=joined.valuenum,
    )
    timed = timed.filter(timed.elapsed >= -3600 * rules.lookback_hours, ~timed.late)
    checked = timed.mutate(value=_fraction(timed), step=_step(timed.elapsed, rules))
    checked = checked.mutate(good=_plausible(checked, measures, limits))
    return checked.group_by("stay_id", "variable", "step").aggregate(
        value=_chosen(checked, rules),
        lowest=checked.value.min(where=checked.good),
        measured=checked.good.ifelse(1, 0).sum().cast("int64"),
        refused=checked.good.ifelse(0, 1).sum().cast("int64"),
    )


def _fraction(events: Any) -> Any:
    """Inspired oxygen is charted as a per cent or as a fraction: make it a fraction."""
    per_cent = (events.variable == VARIABLES.index("fio2")) & events.value.between(20.0, 100.0)
    return per_cent.ifelse(events.value / 100.0, events.value)


def _plausible(events: Any, measures: list[Measure], stated: Mapping[str, Interval]) -> Any:
    limits = {VARIABLES.index(measure.name): (measure.low, measure.high) for measure in measures}
    low = events.variable.cases(*((v, low) for v, (low, _) in limits.items()), else_=0.0)
    high = events.variable.cases(*((v, high) for v, (_, high) in limits.items()), else_=0.0)
    good = (events.value >= low) & (events.value <= high)
    for name in sorted(stated.keys() & {measure.name for measure in measures}):
        interval, other = stated[name], events.variable != VARIABLES.index(name)
        if math.isfinite(interval.low):
            good &= other | (events.value >= interval.low if interval.low_in else events.value > interval.low)
        if math.isfinite(interval.high):
            good &= other | (events.value <= interval.high if interval.high_in else events.value < interval.high)
    return good


def _step(elapsed: Any, rules: Rules) -> Any:
    """Return the first step at which a value is known; what was known before admission is known at step 0."""
    steps = elapsed.cast("float64") / (3600.0 * rules.step_hours)
    whole = steps.ceil() if rules.state_time == "before" else steps.floor()
    return (whole > 0).ifelse(whole, 0).cast("int64")


def _chosen(events: Any, rules: Rules) -> Any:
    if rules.within_step == "last":
        return events.value.argmax(events.elapsed.cast("float64") * TIE - events.value, where=events.good)
    chosen = getattr(events.value, rules.within_step)(where=events.good)
    return chosen.round(DIGITS) if rules.within_step == "mean" else chosen


def treatments(source: Source, rules: Rules) -> Any:
    """Return vasopressors (kind 1) and fluid boluses (kind 2) with begin and end in seconds after admission."""
    events, stays = source.table("inputevents"), eligible(source, rules)
    status = events.statusdescription.fill_null("")
    events = events.filter(events.itemid.isin([*VASOPRESSORS, *CRYSTALLOIDS, *COLLOIDS]), status != "Rewritten")
    joined = events.join(stays, "stay_id")
    unit = joined.amountuom.lower().strip()
    litres = unit.isin(["l", "liter", "litre"]).ifelse(1000.0, unit.isin(["ml", "cc"]).ifelse(1.0, None))
    rate_unit = joined.rateuom.lower().strip()
    per_hour = rate_unit.cases(
        ("ml/hour", 1.0), ("ml/min", 60.0), ("ml/kg/hour", joined.patientweight.cast("float64")), else_=None
    )
    amount, rate = joined.amount * litres.cast("float64"), joined.rate * per_hour
    fast = rate.fill_null(-1.0)
    pressor = joined.itemid.isin(VASOPRESSORS) & (joined.rate.fill_null(joined.amount).fill_null(0.0) > 0)
    crystalloid = (
        joined.itemid.isin(CRYSTALLOIDS)
        & (amount.fill_null(0.0) > rules.crystalloid_ml)
        & (joined.rate.isnull() | (fast > rules.crystalloid_rate))
    )
    colloid = joined.itemid.isin(COLLOIDS) & (amount.fill_null(0.0) > rules.colloid_ml) & (fast > rules.colloid_rate)
    kept = joined.mutate(
        kind=pressor.ifelse(1, (crystalloid | colloid).ifelse(2, 0)).cast("int64"),
        begin=_seconds(joined.starttime) - _seconds(joined.intime),
        end=_seconds(joined.endtime) - _seconds(joined.intime),
    )
    kept = kept.filter(kept.kind > 0, kept.begin.notnull())
    return kept.select("stay_id", "kind", "begin", end=kept.end.fill_null(kept.begin))
