"""One asset a family of language metrics, made from the registry of the library."""

import time

import dagster as dg
import polars as pl

from assets.answers import LANGUAGE_VERSIONS, StoredAnswers, language_files
from assets.partitions import LVLMS
from assets.recorded import asset
from assets.results import OWNERS, materialised, report_link
from plumbline.catalog.schema import polars_schema
from plumbline.language.cell import LanguageFamily, LanguageSettings
from plumbline.language.registry import LANGUAGE_FAMILIES
from resources.lvlms import judge_of
from resources.workspace import Workspace

LANGUAGE_TABLES = tuple(LANGUAGE_FAMILIES)
"""The assets that hold metric rows of a generative model."""


def language_settings(workspace: Workspace) -> LanguageSettings:
    """Return the settings of the audit file; the judge, where there is one, is asked only when words are judged."""
    audit, entry = workspace.audit, workspace.audit.language
    language_files(workspace)  # noted, since they are read
    statistics = audit.statistics.model_dump(include={"seed", "resamples", "permutations", "confidence"})
    counted = entry.model_dump(
        include={"min_count", "association_threshold", "log_base", "min_sets", "most_unreadable"}
    )
    return LanguageSettings(
        **statistics,
        **counted,
        highest_occupations=entry.occupations.highest,
        lowest_occupations=entry.occupations.lowest,
        dictionaries=None if entry.dictionaries is None else workspace.user_file(entry.dictionaries),
        annotations=None if entry.annotations is None else workspace.user_file(entry.annotations),
        judge=judge_of(workspace),
    )


def language_asset(family: LanguageFamily) -> dg.AssetsDefinition:
    """Build the asset of one family."""

    @asset(
        name=family.name,
        description=family.about.description,
        deps=["pictured_people", "generations", "toxicity_scores", "answer_words"],
        partitions_def=LVLMS,
        group_name="language",
        owners=OWNERS,
        kinds={"numpy", "polars"},
        code_version=LANGUAGE_VERSIONS[family.name],
    )
    def compute(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        stored, lake = StoredAnswers.find(workspace, context.partition_key), workspace.lake
        start = time.perf_counter()
        rows, tables = pl.DataFrame(schema=polars_schema()), {}
        settings = language_settings(workspace)
        if "base_llm" not in family.needs or stored.base_llm is not None:
            result = family.compute(stored.cell(), settings=settings)
            rows, tables = result.rows, dict(result.tables)
        seconds = time.perf_counter() - start
        for name, schema in family.tables.items():
            table = tables.get(name, pl.DataFrame(schema=schema))
            lake.write_table(name, table, partition=stored.model)
        frame = stored.with_lineage(rows)
        committed = lake.write_table(family.name, frame, partition=stored.model)
        shown = frame.drop("cell_id", "dataset_digest", "checkpoint_sha256")
        counted = {name: table.height for name, table in tables.items()} | judge_metadata(settings)
        return materialised(
            committed, lake=lake, frame=shown, report=report_link(stored.model), seconds=seconds, **counted
        )

    return compute


def judge_metadata(settings: LanguageSettings) -> dict[str, dg.MetadataValue]:
    """Return what became of the questions to the judge, where it was asked any."""
    counts = getattr(settings.judge, "counts", None)
    numbers = {} if counts is None else {name: int(value) for name, value in vars(counts).items()}
    return {"judge": dg.MetadataValue.json(numbers)} if any(numbers.values()) else {}


LANGUAGE_ASSETS = [language_asset(family) for family in LANGUAGE_FAMILIES.values()]
