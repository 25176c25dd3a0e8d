"""The asset graph: each asset reads, calls the library once, and writes."""

import warnings

import dagster as dg

# Partitioned checks and observable sources are what this graph is built on; that Dagster calls them preview and beta
# is recorded in docs/decisions, and need not be said on every start.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)
