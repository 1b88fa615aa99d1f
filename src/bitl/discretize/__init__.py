"""From measured values to labelled states: declarative bins, or clusters found in the data."""

from .bins import Bin, Interval, Variable
from .clusters import Clusters, fit_clusters
from .scheme import LinearReward, Scheme

__all__ = ["Bin", "Clusters", "Interval", "LinearReward", "Scheme", "Variable", "fit_clusters"]
