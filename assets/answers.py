"""One generative model as it is stored: its answers over all slices, their scores, and its identity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from assets.slices import AskedSlice, asked_slices
from plumbline.catalog.schema import LINEAGE_COLUMNS, SCORE_SCHEMA, polars_schema
from plumbline.catalog.word_lists import answer_words_digest
from plumbline.datasets.grouping import crossed_name, without_small_groups
from plumbline.datasets.records import Declaration
from plumbline.digests import digest_file, digest_json
from plumbline.errors import StorageError
from plumbline.language.cell import DESCRIBED_SCHEMA, EXPECTED_SCHEMA, LanguageCell
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.provenance.code_versions import code_version
from plumbline.storage import Committed
from resources.workspace import Workspace

READING_ANSWERS = (
    "assets.answers", "assets.language", "assets.slices", "resources.lvlms", "plumbline.generators.design",
)  # fmt: skip
"""Shells between what is stored of a generative model and what is computed of it."""
LANGUAGE_VERSIONS = {
    name: code_version(
        family.compute,
        Declaration,
        "plumbline.generators.judge",
        "plumbline.language.user_files",
        shells=READING_ANSWERS,
    )
    for name, family in LANGUAGE_FAMILIES.items()
}
"""Family of language metrics -> version of the code that makes its rows."""


@dataclass(frozen=True)
class StoredAnswers:
    """A generative model in the lake, by manifests that were read once, so that what is used belongs together.

    Attributes
    ----------
    slices : mapping of str to AskedSlice
        What the audit file asks.
    people, answers, scores : mapping of str to Committed
        Of `pictured_people`, `generations` and `toxicity_scores`, by slice.
    """

    workspace: Workspace
    model: str
    slices: Mapping[str, AskedSlice]
    people: Mapping[str, Committed]
    answers: Mapping[str, Committed]
    scores: Mapping[str, Committed]

    @classmethod
    def find(cls, workspace: Workspace, model: str) -> "StoredAnswers":
        """Read the manifests of a model.

        Raises
        ------
        StorageError
            If one is missing, or answers and scores do not belong together.
        """
        lake, slices = workspace.lake, asked_slices(workspace, model)
        answers = cls(
            workspace=workspace,
            model=model,
            slices=slices,
            people={s: lake.require("pictured_people", partition=s) for s in slices},
            answers={s: lake.require("generations", partition=f"{model}|{s}") for s in slices},
            scores={s: lake.require("toxicity_scores", partition=f"{model}|{s}") for s in slices},
        )
        for name, answered in answers.answers.items():
            fits = (
                answered.details["pictured"] == answers.people[name].sha256,
                answers.scores[name].details["generations"] == answered.sha256,
            )
            if not all(fits):
                raise StorageError(
                    "answers, scores and who is pictured do not belong together",
                    where=f"{model}|{name}",
                    hint="run `plumbline audit`, or materialise `generations` and `toxicity_scores` of it again",
                )
        return answers

    @cached_property
    def base_llm(self) -> "StoredAnswers | None":
        """Return the language model that this one was built on, where the audit file asks it and it answered."""
        name = self.workspace.lvlm_entry(self.model).base_llm
        if name is None or name not in self.workspace.audit.asked_models:
            return None
        try:
            return StoredAnswers.find(self.workspace, name)
        except StorageError:
            # It is missing under its own name; the numbers that need no language model are not its matter.
            return None

    @cached_property
    def scorers(self) -> dict[str, bool]:
        """Return scorer -> whether it is only an offline stand-in, in the order of the audit file."""
        about = next(iter(self.scores.values())).details["scorers"]
        # What is stored has its keys sorted.
        return {name: about[name]["stand_in"] for name in self.workspace.audit.scorers if name in about}

    @property
    def version(self) -> str:
        """Return the version of the model that answered.

        Raises
        ------
        StorageError
            If the slices were answered by several versions.
        """
        versions = {committed.details["version"] for committed in self.answers.values()}
        if len(versions) > 1:
            raise StorageError(
                "the slices of this model were answered by different checkpoints",
                where=self.model,
                found=f"{len(versions)} versions",
                hint="run `plumbline audit`",
            )
        return versions.pop()

    @cached_property
    def identity(self) -> str:
        """Return the identity of all of it: answers, scores, settings, code."""
        audit = self.workspace.audit
        return digest_json(
            {
                "model": self.model,
                "people": {s: committed.sha256 for s, committed in self.people.items()},
                "answers": {s: committed.sha256 for s, committed in self.answers.items()},
                "scores": {s: committed.sha256 for s, committed in self.scores.items()},
                "base_llm": None if self.base_llm is None else self.base_llm.identity,
                "settings": [
                    audit.statistics.model_dump(mode="json"),
                    audit.language.model_dump(mode="json"),
                    language_files(self.workspace),
                ],
                "code": LANGUAGE_VERSIONS,
                "words": answer_words_digest(),
            }
        )

    def cell(self) -> LanguageCell:
        """Return what the language metrics are computed from; texts and scores stay in their files."""
        lake = self.workspace.lake
        expected = pl.concat([self._expected(name) for name in self.slices])
        expected = _without_small_occupations(expected, lambda name: self.workspace.dataset_entry(name).least_shown)
        of_people = ("dataset", "image_id", "subset", "set_id", "attribute", "group", "occupation")
        # An image in two scenes is one answer; one in two counterfactual sets counts in both.
        people = expected.select(of_people).unique(maintain_order=True)
        shared = people["image_id"].n_unique() < people.height
        answers = pl.concat([lake.scan_table(committed) for committed in self.answers.values()])
        answers = answers.unique("row_key", maintain_order=True) if shared else answers
        return LanguageCell(
            model=self.model,
            generations=answers.drop("subset", "set_id")
            .join(people.lazy(), on=["dataset", "image_id"], how="left")
            .select(list(DESCRIBED_SCHEMA)),
            scores=pl.concat([lake.scan_table(committed) for committed in self.scores.values()])
            .select(list(SCORE_SCHEMA))
            .pipe(_once, repeated=shared),
            expected=expected,
            scorers=self.scorers,
            base_llm=None if self.base_llm is None else self.base_llm.cell(),
        )

    def _expected(self, name: str) -> pl.DataFrame:
        people = self.workspace.lake.read_table("pictured_people", manifest=self.people[name])
        expected = people.with_columns(pl.lit(self.slices[name].dataset).alias("dataset"))
        return expected.select(list(EXPECTED_SCHEMA)).cast(pl.Schema(EXPECTED_SCHEMA))

    def with_lineage(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Fill the lineage columns of its metric rows; `cell_id` and `audit_id` follow in `metric_table`."""
        return with_lineage(frame, [self], cell_id=None)


def with_lineage(frame: pl.DataFrame, models: Sequence[StoredAnswers], *, cell_id: str | None) -> pl.DataFrame:
    """Fill the lineage columns of metric rows of some models; rows of several have no one checkpoint."""
    people = [committed.details for one in models for committed in one.people.values()]
    scorers = [next(iter(one.scores.values())).details["scorers"] for one in models]
    digests = {details["dataset"]: details["dataset_digest"] for details in people}
    identities = {name: about["identity"] for versions in scorers for name, about in versions.items()}
    prompts = {committed.details["prompts"] for one in models for committed in one.answers.values()}
    known = {
        "cell_id": pl.lit(cell_id, pl.String),
        "dataset_digest": pl.col("dataset").replace_strict(digests, default=None, return_dtype=pl.String),
        "checkpoint_sha256": pl.lit(models[0].version if len(models) == 1 else None, pl.String),
        "suite_hash": pl.lit(digest_json(sorted(prompts))),
        "scorer_id": pl.col("scorer").replace_strict(identities, default=None, return_dtype=pl.String),
    }
    filled = {name: known.get(name, pl.lit(None, dtype=pl.String)).alias(name) for name in LINEAGE_COLUMNS}
    return frame.with_columns(**filled).select(list(polars_schema())).cast(polars_schema())


def _without_small_occupations(people: pl.DataFrame, least_of: Callable[[str], int]) -> pl.DataFrame:
    """Take the occupation from images of a group that has too few of it to be shown, and of what would tell them."""
    parts = []
    for (dataset, _), part in people.group_by("dataset", "attribute", maintain_order=True):
        least = least_of(str(dataset))
        if least > 1 and part["occupation"].null_count() < part.height:
            both = crossed_name(("occupation", "group"))
            images = part.unique("image_id", maintain_order=True)
            shown = without_small_groups(images, [], {both: ("occupation", "group")}, least=least)[0]
            known = shown.drop_nulls(both).select("image_id")
            there = pl.col("image_id").is_in(known["image_id"].implode())
            part = part.with_columns(pl.when(there).then("occupation").alias("occupation"))
        parts.append(part)
    return pl.concat(parts) if parts else people


def _once(scores: pl.LazyFrame, *, repeated: bool) -> pl.LazyFrame:
    """Keep one of the rows that stand in the scores of several slices.

    To find them takes all row keys of a model in memory, so it is done only where there are any.
    """
    return scores.unique(["row_key", "scorer", "attribute"]) if repeated else scores


def language_files(workspace: Workspace) -> dict[str, str]:
    """Return the digests of the user's own files that language metrics read."""
    named = {"dictionaries": workspace.audit.language.dictionaries, "annotations": workspace.audit.language.annotations}
    return {name: _digest_of(workspace, path) for name, path in named.items() if path is not None}


def _digest_of(workspace: Workspace, path: str) -> str:
    digest = digest_file(workspace.user_file(path))
    workspace.note("user_file", path, value=digest)
    return digest
