"""bitl: learn how the world responds from the logged decisions of near-optimal experts.

Bayesian Inverse Transition Learning for tabular MDPs: estimators, posteriors, certificates and metrics.
"""

from . import metrics, worlds
from ._version import __version__
from .constraints import Certificate, Constraints, certify, count_violations
from .errors import BitlError, DataError, InfeasibleError, SamplingError, UndecidedError
from .estimate import Estimate
from .estimators.itl import fit_itl
from .estimators.joint import fit_itl_joint
from .estimators.mce import fit_mce
from .estimators.mle import fit_mle
from .expert import ExpertActions, epsilon_for_stochastic_share
from .labels import Labels
from .planning import Plan, SoftPlan, evaluate, plan, plan_soft
from .posterior.bitl import sample_bitl
from .posterior.diagnostics import Diagnostics
from .posterior.dirichlet import sample_dirichlet
from .posterior.posterior import Posterior
from .posterior.regret import Regret
from .posterior.rejection import sample_rejection
from .tables import Table, read_minari, read_reward, read_rollouts, read_table
from .task import Task
from .transitions import Counts, Transitions
from .tuning import EpsilonTuning, tune_epsilon

__all__ = [
    "BitlError",
    "Certificate",
    "Constraints",
    "Counts",
    "DataError",
    "Diagnostics",
    "EpsilonTuning",
    "Estimate",
    "ExpertActions",
    "InfeasibleError",
    "Labels",
    "Plan",
    "Posterior",
    "Regret",
    "SamplingError",
    "SoftPlan",
    "Table",
    "Task",
    "Transitions",
    "UndecidedError",
    "__version__",
    "certify",
    "count_violations",
    "epsilon_for_stochastic_share",
    "evaluate",
    "fit_itl",
    "fit_itl_joint",
    "fit_mce",
    "fit_mle",
    "metrics",
    "plan",
    "plan_soft",
    "read_minari",
    "read_reward",
    "read_rollouts",
    "read_table",
    "sample_bitl",
    "sample_dirichlet",
    "sample_rejection",
    "tune_epsilon",
    "worlds",
]
