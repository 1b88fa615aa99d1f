"""The rules that lead from MIMIC-IV to transitions: each an option with a default, and where the default comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from .. import _validate
from ..errors import DataError

ACTIONS = ("no treatment", "vasopressor", "fluid bolus", "vasopressor and fluid bolus")
COLUMNS = ("pf_ratio", "map", "gcs", "creatinine")  # what a scheme may ask for

PAPER = "paper"
SILENT = "the paper is silent"
CODE = "mimic-code"


@dataclass(frozen=True)
class Measure:
    """A measured quantity: where it is charted and which values can be true."""

    name: str
    table: str
    items: tuple[int, ...]
    low: float
    high: float  #: values outside [low, high] are no measurement


# Item ids as in mimic-code (MIT-LCP); MAP: arterial line, cuff, arterial line (second).
MEASURES = (
    Measure("map", "chartevents", (220052, 220181, 225312), 1e-9, 300 - 1e-9),
    Measure("gcs_eye", "chartevents", (220739,), 1, 4),
    Measure("gcs_verbal", "chartevents", (223900,), 1, 5),
    Measure("gcs_motor", "chartevents", (223901,), 1, 6),
    Measure("fio2", "chartevents", (223835,), 0.2, 1),
    Measure("fio2", "labevents", (50816,), 0.2, 1),
    Measure("pao2", "labevents", (50821,), 1, 800),
    Measure("creatinine", "labevents", (50912,), 1e-9, 150),
)
VARIABLES = tuple(dict.fromkeys(measure.name for measure in MEASURES))
VASOPRESSORS = (221906, 221289, 221749, 222315, 221662)
CRYSTALLOIDS = (225158, 225828, 225944, 225797, 225159, 225823, 225825, 225827, 225941, 226089)
COLLOIDS = (220864, 220862, 225174, 225795, 225796)


def _rule(default: Any, words: str, source: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"words": words, "source": source, "choices": choices})


@dataclass(frozen=True)
class Rules:
    """How to read MIMIC-IV; ``Rules.describe()`` lists every rule with its source."""

    min_age: float = _rule(18, "youngest age at admission to the ICU, in years", PAPER)
    max_age: float = _rule(80, "oldest age, in years", PAPER)
    min_hours: float = _rule(24, "shortest ICU stay, in hours", PAPER)
    map_at_most: float = _rule(65, "some mean arterial pressure of the stay is at most this, in mmHg", PAPER)
    first_stay_only: bool = _rule(False, "keep only the first such stay of each patient", SILENT)
    step_hours: float = _rule(1, "length of a step, in hours", f"{SILENT}; hourly is usual")
    window_hours: float = _rule(
        72, "hours from admission that are used; 0 for the whole stay", f"{SILENT}; 72 h fits its 100,000 transitions"
    )
    lookback_hours: float = _rule(24, "values from this long before admission count as known", SILENT)
    within_step: str = _rule(
        "last", "of several values in a step, the one that counts", SILENT, ("last", "mean", "min", "max")
    )
    state_time: str = _rule(
        "before",
        "a state is what was known before the step's treatment, or what was measured during it (which leaks)",
        SILENT,
        ("before", "during"),
    )
    carry_hours: float = _rule(0, "a value is carried forward this long; 0 for ever", SILENT)
    impute: str = _rule(
        "normal", "where nothing is known: assume the scheme's normal value, or drop the step", SILENT,
        ("normal", "drop"),
    )  # fmt: skip
    room_air: float = _rule(0.21, "inspired oxygen where only PaO2 is known", f"{SILENT}; room air is seldom charted")
    vasopressor_when: str = _rule(
        "running", "a step has a vasopressor if one is running, or only if one was started", SILENT,
        ("running", "started"),
    )  # fmt: skip
    bolus_when: str = _rule(
        "started", "a step has a bolus if one was started, or also while it runs", SILENT, ("started", "running")
    )
    crystalloid_ml: float = _rule(248, "a crystalloid bolus has more than this, in mL", CODE)
    crystalloid_rate: float = _rule(248, "and runs faster than this, in mL/h, if its rate is known", CODE)
    colloid_ml: float = _rule(100, "a colloid bolus has more than this, in mL", CODE)
    colloid_rate: float = _rule(100, "and runs faster than this, in mL/h", CODE)

    def __post_init__(self) -> None:
        for rule in fields(self):
            value = getattr(self, rule.name)
            if rule.metadata["choices"]:
                _validate.one_of(value, rule.name, rule.metadata["choices"])
            elif isinstance(rule.default, bool):
                if not isinstance(value, bool):
                    raise DataError(f"The '{rule.name}' parameter must be True or False. Got {value!r} instead.")
            else:
                low, ends = (0, "()") if rule.name in ("step_hours", "room_air") else (0, "[)")
                _validate.real(value, rule.name, low=low, ends=ends)
        _validate.real(self.room_air, "room_air", low=0.2, high=1)
        if self.min_age > self.max_age:
            raise DataError(f"The ages {self.min_age:g} to {self.max_age:g} are nobody's; exchange them.")

    @classmethod
    def describe(cls) -> list[dict[str, Any]]:
        """Return every rule: its name, default, meaning and source."""
        return [
            {
                "rule": rule.name,
                "default": rule.default,
                "meaning": rule.metadata["words"],
                "source": rule.metadata["source"],
                "choices": list(rule.metadata["choices"]),
            }
            for rule in fields(cls)
        ]

    @classmethod
    def parse(cls, words: Iterable[str]) -> Rules:
        """Make rules from texts such as ``"window_hours=0"``; what is not named keeps its default.

        Examples
        --------
        >>> Rules.parse(["window_hours=0", "within_step=mean"]).within_step
        'mean'
        """
        known = {rule.name: rule for rule in fields(cls)}
        given: dict[str, Any] = {}
        for word in words:
            name, sign, text = word.partition("=")
            name = name.strip().replace("-", "_")
            if not sign or name not in known:
                raise DataError(f"A rule reads like 'window_hours=0'; got {word!r}. The rules are {', '.join(known)}.")
            given[name] = _value(known[name], text.strip())
        return cls(**given)


def _value(rule: Any, text: str) -> Any:
    if isinstance(rule.default, bool):
        if text.lower() not in ("true", "false", "yes", "no"):
            raise DataError(f"The rule {rule.name} is yes or no. Got {text!r} instead.")
        return text.lower() in ("true", "yes")
    if isinstance(rule.default, str):
        return text
    try:
        return float(text)
    except ValueError:
        raise DataError(f"The rule {rule.name} is a number. Got {text!r} instead.") from None
