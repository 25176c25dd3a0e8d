"""Readers: a dataset's own index and files into one table of records."""

from plumbline.catalog.schema import QUARANTINE_SCHEMA
from plumbline.datasets.extended import composite_labels, extend_records, label_error_table
from plumbline.datasets.filters import RowFilter, filter_names, row_filter
from plumbline.datasets.ingestion import dataset_digest, folder_digest, ingest
from plumbline.datasets.records import (
    EXTENDED_SCHEMA,
    LABEL_COLUMNS,
    RECORD_SCHEMA,
    Declaration,
    Entry,
    Ingested,
    LabelRule,
    Reader,
    Refusal,
    load_declaration,
)
from plumbline.datasets.registry import reader_for, reader_names

__all__ = [
    "EXTENDED_SCHEMA",
    "LABEL_COLUMNS",
    "QUARANTINE_SCHEMA",
    "RECORD_SCHEMA",
    "Declaration",
    "Entry",
    "Ingested",
    "LabelRule",
    "Reader",
    "Refusal",
    "RowFilter",
    "composite_labels",
    "dataset_digest",
    "extend_records",
    "filter_names",
    "folder_digest",
    "ingest",
    "label_error_table",
    "load_declaration",
    "reader_for",
    "reader_names",
    "row_filter",
]
