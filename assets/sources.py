"""What the graph starts from, observed by content: dataset folders, checkpoints and prompt suites."""

import dagster as dg

from assets.partitions import DATASETS, ENCODERS
from assets.results import OWNERS
from plumbline.datasets import folder_digest, reader_for
from plumbline.digests import digest_json
from plumbline.errors import PlumblineError
from plumbline.tables.suites import all_suites
from resources.places import Places


@dg.observable_source_asset(partitions_def=DATASETS, group_name="sources", owners=OWNERS, kinds={"image"})
def dataset_folder(places: dg.ResourceParam[Places]) -> dg.DataVersionsByPartition:
    """A dataset as it lies on disk: its index and image files. Its version is the content of all of them."""
    versions = {}
    for dataset, entry in places.audit.datasets.items():
        try:
            versions[dataset] = folder_digest(reader_for(entry.reader), places.dataset_root(dataset))
        except PlumblineError as error:
            dg.get_dagster_logger().warning("dataset %s was not observed: %s", dataset, error)
    return dg.DataVersionsByPartition(versions)


@dg.observable_source_asset(partitions_def=ENCODERS, group_name="sources", owners=OWNERS, kinds={"pytorch"})
def encoder_checkpoint(places: dg.ResourceParam[Places]) -> dg.DataVersionsByPartition:
    """A model checkpoint as it lies on disk. Its version is the content of weights, configuration and tokenizer."""
    versions = {}
    for encoder in places.audit.encoders:
        try:
            versions[encoder] = places.checkpoint(encoder).digest
        except PlumblineError as error:
            dg.get_dagster_logger().warning("checkpoint %s was not observed: %s", encoder, error)
    return dg.DataVersionsByPartition(versions)


@dg.observable_source_asset(group_name="sources", owners=OWNERS, kinds={"yaml"})
def prompt_suites() -> dg.DataVersion:
    """The prompts of every suite, as rendered. A changed word changes this version, and no image embedding."""
    return dg.DataVersion(digest_json([suite.hash for suite in all_suites()]))
