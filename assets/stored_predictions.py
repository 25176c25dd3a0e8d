"""What is stored of a cell whose encoder was run elsewhere: a table of predictions, or embeddings."""

from collections.abc import Callable, Sequence

from plumbline.catalog.suites import Suite
from plumbline.checkpoints.addresses import parse_address
from plumbline.commands.places import here
from plumbline.config.entries import Predictions
from plumbline.encoders.families import Capability, Family
from plumbline.encoders.stored_embeddings import StoredEmbeddingFiles, lacking_texts, not_stored
from plumbline.encoders.stored_predictions import PredictionTable, table_of_dataset
from plumbline.errors import EncodingError
from plumbline.reasons import Reason, reason
from plumbline.recording import unrecorded
from resources.workspace import Workspace


def prediction_table(workspace: Workspace, dataset: str, model: str) -> PredictionTable:
    """Return the table that holds what an encoder chose for the images of a dataset; see `table_of_dataset`."""
    with unrecorded():  # its content counts, by the version of the checkpoint
        entry, of = workspace.dataset_entry(dataset), workspace.audit.encoders[model]
    settings = of.predictions or Predictions()
    return table_of_dataset(
        parse_address(of.address, project=here()).folder_in(workspace.fetched),
        dataset,
        model,
        columns=entry.map,
        reader=entry.reader,
        root=workspace.dataset_root(dataset),
        names=settings.names,
        image=settings.image,
    )


def held_by(workspace: Workspace, dataset: str, model: str, *, family: Family) -> Callable[[Suite], bool]:
    """Return whether a suite has what it needs among what is stored of a cell; it has, where nothing is."""
    if family.logit == "stored":
        return prediction_table(workspace, dataset, model).answers
    files = workspace.checkpoint(model) if _has_own_texts_alone(family) else None
    return lambda suite: not (isinstance(files, StoredEmbeddingFiles) and lacking_texts(files, suite))


def require_held(workspace: Workspace, dataset: str, model: str, suites: Sequence[Suite], *, family: Family) -> None:
    """Refuse suites that what is stored of a cell cannot answer.

    Raises
    ------
    EncodingError
        With the columns or prompts that are not there.
    """
    if family.logit == "stored":
        prediction_table(workspace, dataset, model).require(suites)
    elif _has_own_texts_alone(family) and isinstance(files := workspace.checkpoint(model), StoredEmbeddingFiles):
        for suite in suites:
            if lacking := lacking_texts(files, suite):
                raise EncodingError(
                    f"{len(lacking)} of {len(suite.embedded)} texts of the suite `{suite.id}` have no stored embedding",
                    where=files.texts,
                    found=f"nothing for `{lacking[0]}`",
                    expected="every prompt, letter by letter",
                    hint="name a checkpoint under `embeddings.texts`, whose text tower embeds any prompt",
                )


def left_out_of_stored(workspace: Workspace, model: str, lacking: Sequence[Suite], *, family: Family) -> Reason:
    """Return why some suites of a cell whose images were seen elsewhere have no numbers."""
    names = [suite.id for suite in lacking]
    files = workspace.checkpoint(model) if _has_own_texts_alone(family) else None
    if not isinstance(files, StoredEmbeddingFiles):
        return reason("predictions_only", suites=names)
    absent = dict.fromkeys(text for suite in lacking for text in lacking_texts(files, suite))
    return not_stored(names, list(absent), of=len({text for suite in lacking for text in suite.embedded}))


def _has_own_texts_alone(family: Family) -> bool:
    return Capability.EMBED_TEXTS in family.offers and Capability.NEW_TEXTS not in family.offers
