"""What of a cell is computed in one run."""

import pytest

from assets.up_to_date import NEVER
from orchestration.audit_plan import AuditPlan
from orchestration.definitions import defs
from resources.workspace import Workspace

EDITED, OTHER = ["code of plumbline.metrics.rankings.rows"], ["the prompts of the suite crime"]


@pytest.fixture(scope="module")
def plan():
    return AuditPlan(defs, Workspace.standard())


@pytest.mark.parametrize(
    ("stale", "first"),
    [
        # What may come out as it was is computed by itself, and what is computed from it looked at afterwards.
        ({"ranking_metrics": EDITED, "trident_metrics": EDITED}, {"ranking_metrics", "trident_metrics"}),
        ({"ranking_metrics": EDITED, "tracked_run": OTHER}, {"ranking_metrics"}),
        ({"probe_logits": OTHER, "outcome_metrics": OTHER}, {"probe_logits"}),
        # What does not is followed by what is computed from it.
        ({"outcome_metrics": OTHER}, {"outcome_metrics", "tracked_run"}),
        ({"outcome_metrics": [*EDITED, *OTHER]}, {"outcome_metrics", "tracked_run"}),
        ({"ranking_metrics": [NEVER]}, {"ranking_metrics", "tracked_run"}),
    ],
)
def test_what_may_come_out_as_it_was_is_computed_first(plan, stale, first):
    assert set(plan.selection("cells", stale)) == first
