"""The plan of an audit: how many images and questions, from the audit file and what is stored; no model is loaded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from assets.asked_cells import cell_mitigations, cell_suites, declaration_of
from assets.slices import AskedSlice, asked_slices
from plumbline.catalog.studies import DatasetSize, published_sizes
from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG
from plumbline.datasets.records import Refusal
from plumbline.encoders.plan import (
    ArchitectureSummary,
    ComputedCell,
    EncoderPlan,
    PlannedCell,
    architecture_summary,
    plan_cell,
)
from plumbline.errors import CheckpointError, ConfigError, PlumblineError
from plumbline.generators.design import asked_rows
from plumbline.generators.families import how_it_reads
from plumbline.generators.generation import GenerationStore
from plumbline.generators.plan import Plan, PlannedSlice, plan_slice, published_slices
from plumbline.mitigations.text_mitigations import TextMitigationSettings
from plumbline.recording import unrecorded
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.storage import Committed
from plumbline.world.folders import PLANTED
from resources.lvlms import backend_identity, readable_files
from resources.workspace import Workspace


def absent_datasets(workspace: Workspace) -> dict[str, DatasetSize]:
    """Return dataset -> published size, for the datasets that are used and are not on this disk.

    Raises
    ------
    ConfigError
        If nobody has published how large such a dataset is.
    """
    used = workspace.audit.used_datasets
    return {dataset: _published(workspace, dataset) for dataset in used if _is_absent(workspace, dataset)}


def images_of(workspace: Workspace, dataset: str) -> int:
    """Return how many images a dataset on this disk has: accepted ones, or unread what it lists; none is opened."""
    if committed := recorded(workspace, dataset):
        return committed.rows
    listed = workspace.dataset_entry(dataset).open_reader().entries(workspace.dataset_root(dataset))
    return sum(not isinstance(entry, Refusal) for entry in listed)


def recorded(workspace: Workspace, dataset: str) -> Committed | None:
    """Return the records of a dataset; None without any, or where its name meant other data when they were made."""
    committed = workspace.lake.committed("records", partition=dataset)
    return (
        committed
        if committed and committed.details.get("read_as") == workspace.dataset_entry(dataset).read_as
        else None
    )


def _is_absent(workspace: Workspace, dataset: str) -> bool:
    # Asking for the folder of the planted world would write it.
    if workspace.dataset_entry(dataset).root.startswith(PLANTED) or recorded(workspace, dataset):
        return False
    return not workspace.dataset_root(dataset).is_dir()


def _published(workspace: Workspace, dataset: str) -> DatasetSize:
    entry, known = workspace.dataset_entry(dataset), published_sizes()
    if entry.reader not in known:
        raise ConfigError(
            f"the dataset `{dataset}` is not on this disk, and nobody has published how large it is",
            where=workspace.audit_path,
            found=entry.root,
            expected=f"a folder, or the data of one of {', '.join(known)}",
        )
    return known[entry.reader]


def plan_encoders(workspace: Workspace, absent: Mapping[str, DatasetSize]) -> EncoderPlan:
    """Plan what goes through the encoders of the audit file; no model is loaded.

    Encoders of one checkpoint and family share their embeddings: the first of them is planned with them.

    Parameters
    ----------
    absent : mapping of str to DatasetSize
        Published sizes of the datasets that are not on this disk.
    """
    outlines: dict[str, ArchitectureSummary] = {}
    unreadable: dict[str, str] = {}
    counted: dict[str, int] = {}
    embedded: set[tuple[str, str, str]] = set()
    planned = []
    for dataset, encoder in _wanted(workspace):
        if encoder in unreadable:
            continue
        if encoder not in outlines:
            try:
                outlines[encoder] = _outline(workspace, encoder)
            except CheckpointError as error:
                if workspace.audit.strict:
                    raise
                unreadable[encoder] = str(error)
                continue
        if dataset not in counted:
            counted[dataset] = absent[dataset].images if dataset in absent else images_of(workspace, dataset)
        outline, address = outlines[encoder], workspace.audit.encoders[encoder].address
        of_checkpoint = (dataset, address, outline.family.name)
        planned.append(
            plan_cell(
                dataset,
                encoder,
                images=counted[dataset],
                suites=cell_suites(workspace, dataset, encoder, family=outline.family),
                architecture=outline,
                computed=_computed(workspace, dataset, encoder),
                shared=of_checkpoint in embedded,
            )
        )
        embedded.add(of_checkpoint)
    planned += [
        cell
        for encoder, outline in outlines.items()
        if encoder not in unreadable
        for cell in _planned_pairs(workspace, encoder, outline, absent)
    ]
    return EncoderPlan(planned, unreadable)


def _planned_pairs(
    workspace: Workspace, encoder: str, outline: ArchitectureSummary, absent: Mapping[str, DatasetSize]
) -> Iterator[PlannedCell]:
    """Plan the image-text pairs that an encoder's mitigations are trained on or judged by; no cell asks of them."""
    audit = workspace.audit
    tried = {
        (cell, name): settings
        for cell in audit.cells
        if cell[1] == encoder
        for name, settings in cell_mitigations(workspace, *cell, family=outline.family).items()
        if isinstance(settings, TextMitigationSettings)
    }
    trained_on = {dataset for settings in tried.values() for _, dataset in settings.pair_datasets}
    for dataset in audit.pair_datasets:
        if dataset not in trained_on and (not tried or dataset not in audit.retrieval.datasets):
            continue
        images = absent[dataset].images if dataset in absent else _pictures(workspace, dataset)
        fitted = all(_is_fitted(workspace, cell, name, settings.method) for (cell, name), settings in tried.items())
        there = recorded(workspace, dataset) is not None
        cell = plan_cell(
            dataset,
            encoder,
            images=images if dataset in trained_on else min(images, audit.retrieval.images),
            suites=(),
            architecture=outline,
            computed=ComputedCell(records=there, index=there and fitted, labels=there and fitted),
        )
        yield replace(cell, purpose="mitigations")


def _pictures(workspace: Workspace, dataset: str) -> int:
    """Return how many images a dataset of pairs on this disk has, each once whatever its captions."""
    if committed := recorded(workspace, dataset):
        return workspace.lake.read_table("records", manifest=committed)["image_id"].n_unique()
    listed = workspace.dataset_entry(dataset).open_reader().entries(workspace.dataset_root(dataset))
    return len({entry.path for entry in listed if not isinstance(entry, Refusal)})


def _is_fitted(workspace: Workspace, cell: tuple[str, str], name: str, method: str) -> bool:
    committed = workspace.lake.committed(method, partition="|".join(cell))
    return committed is not None and name in {**committed.details["fits"], **committed.details["absent"]}


def _wanted(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield every cell, and the labeller on every dataset that is read: it labels genders there."""
    audit = workspace.audit
    yield from audit.cells
    for dataset in audit.audited_datasets if audit.labeller else ():
        reader = workspace.dataset_entry(dataset).open_reader()
        if reader.has_images and reader.declaration.of_people and (dataset, audit.labeller) not in audit.cells:
            yield dataset, audit.labeller


def _outline(workspace: Workspace, encoder: str) -> ArchitectureSummary:
    entry = workspace.audit.encoders[encoder]
    folder = workspace.encoder_folder(encoder)
    return architecture_summary(
        encoder, entry.address, folder, family=entry.family, embeddings=entry.embeddings, sizes=workspace.sizes
    )


def _computed(workspace: Workspace, dataset: str, encoder: str) -> ComputedCell:
    records = recorded(workspace, dataset)
    if records is None:
        return ComputedCell()

    now = _weights_now(workspace, encoder)

    def of_these(name: str, partition: str, weights: str = "weights_sha256") -> Committed | None:
        one = workspace.lake.committed(name, partition=partition)
        same = one is not None and one.details["records_sha256"] == records.sha256
        return one if same and now in (None, one.details.get(weights, now)) else None

    cell = f"{dataset}|{encoder}"
    labels = encoder == workspace.audit.labeller
    labelled = of_these("extended_records", dataset, "labeller_sha256") if labels else None
    logits = of_these("probe_logits", cell)
    return ComputedCell(
        records=True,
        index=of_these("image_embeddings", cell) is not None,
        labels=labelled is not None and labelled.details["labeller"] == encoder,
        logits=logits is not None,
        texts=frozenset(logits.details["texts"] if logits else ()),
    )


def _weights_now(workspace: Workspace, encoder: str) -> str | None:
    """Return the digest of an encoder's weights as they lie on disk; None where nothing can be said of them."""
    try:
        return workspace.checkpoint(encoder, sizes=workspace.sizes).weights_sha256
    except PlumblineError:
        return None


def recorded_groups(workspace: Workspace) -> dict[str, list[Groups]]:
    """Return the groups of the datasets that have been read."""
    datasets = dict.fromkeys(dataset for dataset, _ in workspace.audit.cells)
    records = {dataset: committed for dataset in datasets if (committed := recorded(workspace, dataset))}
    lake = workspace.lake
    return {dataset: attribute_groups(lake.read_table("records", manifest=one)) for dataset, one in records.items()}


def plan_generation(
    workspace: Workspace, models: Sequence[str] | None = None, *, absent: Mapping[str, DatasetSize] | None = None
) -> Plan:
    """Plan what the audit file asks of its generative models; no model is loaded.

    Parameters
    ----------
    models : sequence of str, optional
        Only these; all by default.
    absent : mapping of str to DatasetSize, optional
        Published sizes of the datasets that are not on this disk. With it, models need not be there either: nothing
        that they said can be.

    Raises
    ------
    StorageError
        If the records of another dataset have not been made.
    CheckpointError
        If a model is not on this disk, and `absent` is not given; or cannot be read, and the audit file says
        `strict: true`.
    """
    wanted = models or workspace.audit.asked_models
    if absent is None:
        return Plan([one for model in wanted for one in _planned(workspace, model)])
    unreadable: dict[str, str] = {}
    reading: dict[str, str] = {}
    for model in wanted:
        address = workspace.lvlm_entry(model).address
        if address is None or not (workspace.checkpoint_folder(address) / TRANSFORMERS_CONFIG).is_file():
            continue
        try:
            files = readable_files(workspace, model)
            reading[model] = how_it_reads(files.family, files.model_type, files.thinking)
        except CheckpointError as error:
            if workspace.audit.strict:
                raise
            unreadable[model] = str(error)
    readable = [model for model in wanted if model not in unreadable]
    slices = [one for model in readable for one in _planned_anywhere(workspace, model, absent)]
    return Plan(slices, unreadable, reading)


def _planned_anywhere(workspace: Workspace, model: str, absent: Mapping[str, DatasetSize]) -> list[PlannedSlice]:
    planned = _planned(workspace, model, absent=absent)
    for (name, dataset), entries in workspace.audit.designs.items():
        if name == model and dataset in absent:
            planned += published_slices(
                model,
                dataset,
                entries,
                absent[dataset],
                most_new_tokens=workspace.decoding(model).max_new_tokens,
                image_tokens=workspace.image_tokens(model),
                sees=model not in workspace.audit.base_llms,
                has_occupations="occupation" in declaration_of(workspace, dataset).filled,
                endpoint=workspace.lvlm_entry(model).endpoint,
            )
    return planned


def require_within_limit(workspace: Workspace, model: str, slice_id: str) -> None:
    """Refuse a slice that is alone above the audit file's limit, however it is asked for.

    Raises
    ------
    ConfigError
        As `Plan.require`.
    """
    with unrecorded():  # it decides whether something is asked, not what
        limit = workspace.audit.generation.limit
        if any(most is not None for _, most in limit):
            Plan(_planned(workspace, model, only=slice_id)).require(limit)


def _planned(
    workspace: Workspace, model: str, *, only: str | None = None, absent: Mapping[str, DatasetSize] | None = None
) -> list[PlannedSlice]:
    slices = asked_slices(workspace, model, without=absent or ())
    if not slices:
        return []
    decoding, store = workspace.decoding(model), GenerationStore(workspace.answers)
    identity, rate = (
        _identity(workspace, model, anywhere=absent is not None),
        _tokens_per_second(workspace, model, slices),
    )
    planned = []
    for name, sliced in slices.items():
        if only not in (None, name):
            continue
        questions = asked_rows(
            sliced.rows,
            sliced.entries,
            identity=identity,
            decoding=decoding,
            root=workspace.dataset_root(sliced.dataset),
            sees=model not in workspace.audit.base_llms,
            articles=workspace.audit.generation.articles,
        )
        keys = pl.DataFrame({"row_key": [one.key for one in questions]}, schema={"row_key": pl.String})
        lacking = set(store.kept(identity, name).lacking(keys)["row_key"])
        planned.append(
            plan_slice(
                model,
                name,
                questions,
                lacking,
                most_new_tokens=decoding.max_new_tokens,
                image_tokens=workspace.image_tokens(model),
                tokens_per_second=rate,
                endpoint=workspace.lvlm_entry(model).endpoint,
            )
        )
    return planned


def _identity(workspace: Workspace, model: str, *, anywhere: bool) -> str:
    """Return what a model's answers are kept under; of one that is not on this disk, a name that nothing is under."""
    address = workspace.lvlm_entry(model).address
    if anywhere and address is not None and not (workspace.checkpoint_folder(address) / TRANSFORMERS_CONFIG).is_file():
        return address
    return backend_identity(workspace, model)


def _tokens_per_second(workspace: Workspace, model: str, slices: Mapping[str, AskedSlice]) -> float | None:
    """Return the mean rate of the newest runs of a model in which it generated; None where there is none."""
    committed = [workspace.lake.committed("generations", partition=f"{model}|{name}") for name in slices]
    if workspace.lvlm_entry(model).answers is not None:  # they are read
        return float("inf")
    rates = [rate for one in committed if one is not None and (rate := one.details["tokens_per_second"])]
    return sum(rates) / len(rates) if rates else None
