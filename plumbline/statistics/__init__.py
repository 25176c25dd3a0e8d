"""Uncertainty: intervals, resampling, permutation tests, power, multiple testing, seeds."""

from plumbline.statistics.bootstrap import jackknife_tables, resample_tables
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import count_table
from plumbline.statistics.intervals import bca, percentile, wilson
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.maxima import Disparity, estimate_disparity
from plumbline.statistics.multiplicity import CORRECTED_TOGETHER, add_q_values, q_values
from plumbline.statistics.permutation import p_value, permute_tables
from plumbline.statistics.seeds import generator

__all__ = [
    "CORRECTED_TOGETHER",
    "Disparity",
    "Estimate",
    "Jackknife",
    "add_q_values",
    "bca",
    "count_table",
    "estimate_disparity",
    "generator",
    "jackknife_tables",
    "p_value",
    "percentile",
    "permute_tables",
    "q_values",
    "resample_tables",
    "wilson",
]
