"""What Dagster loads: assets, checks, jobs and resources of the audit file in force."""

import dagster as dg

from assets.adjustments import logit_adjustment
from assets.answers_checks import ANSWER_CHECKS
from assets.answers_tracking import tracked_answers
from assets.audit_diff import audit_diff, no_regression
from assets.audit_record import audit_record
from assets.checks import ASSET_CHECKS
from assets.comparison import paper_comparison
from assets.datasets import extended_records_asset, records_and_quarantine
from assets.effects import factor_effects
from assets.embeddings import image_embeddings, text_embeddings
from assets.findings import audit_report, metric_table, provenance
from assets.generation import generations, toxicity_scores
from assets.geometry import valence_geometry
from assets.language import LANGUAGE_ASSETS
from assets.logits import probe_logits
from assets.metrics import METRIC_ASSETS
from assets.mitigated import mitigated_metrics
from assets.scorecard import scorecard
from assets.slices import pictured_people
from assets.sources import SOURCES
from assets.text_mitigations import TEXT_MITIGATIONS
from assets.tracking import tracked_run
from assets.transfer import bias_transfer, no_bias_is_moved
from orchestration.automation import automated, automation_sensor
from orchestration.executors import chosen_executor
from orchestration.jobs import JOBS
from orchestration.observing import observe_sources, watch_sources
from orchestration.schedules import full_audit, weekly_audit
from orchestration.watched_folder import watch_folder
from resources.encoders import EncoderPool
from resources.lvlms import LvlmPool
from resources.no_pickles import NoPickles
from resources.quality import Quality
from resources.tracking import Tracking
from resources.workspace import Workspace


def build_definitions(workspace: Workspace) -> dg.Definitions:
    """Build the definitions for an audit file and a home; tests build their own."""
    labeller = workspace.audit.labeller
    labelled = [] if labeller is None and not workspace.audit.cells else [extended_records_asset(labeller)]
    assets = [
        *SOURCES,
        *automated(
            workspace,
            records_and_quarantine, *labelled,
            text_embeddings, valence_geometry, image_embeddings, probe_logits, *METRIC_ASSETS,
            logit_adjustment, *TEXT_MITIGATIONS, mitigated_metrics, tracked_run,
            pictured_people, generations, toxicity_scores, *LANGUAGE_ASSETS, tracked_answers,
            metric_table, scorecard, factor_effects, bias_transfer, paper_comparison, provenance, audit_record,
            audit_diff, audit_report,
        ),
    ]  # fmt: skip
    return dg.Definitions(
        assets=assets,
        asset_checks=[*ASSET_CHECKS, *ANSWER_CHECKS, no_bias_is_moved, no_regression],
        jobs=[*JOBS.values(), observe_sources, full_audit],
        sensors=[watch_folder, watch_sources, automation_sensor],
        schedules=[weekly_audit],
        executor=chosen_executor(),
        resources={
            "workspace": workspace,
            "encoders": EncoderPool(workspace),
            "lvlms": LvlmPool(workspace),
            "quality": Quality(workspace),
            "tracking": Tracking(workspace),
            "io_manager": NoPickles(),
        },
    )


defs = build_definitions(Workspace.from_environment())
