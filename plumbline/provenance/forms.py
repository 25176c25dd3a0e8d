"""The forms in which an audit is handed on, by `plumbline export` and from memory alike, and their checksums."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl
import yaml

from plumbline.catalog.files import data_yaml
from plumbline.catalog.schema import ALL_MODELS, BEFORE, Schema
from plumbline.catalog.suites import Suite, all_suites
from plumbline.datasets.records import printable
from plumbline.datasets.sources import parse_dataset_address
from plumbline.digests import digest_bytes, digest_file
from plumbline.errors import UNSAFE, ConfigError, StorageError
from plumbline.provenance.export import (
    CLIP_BENCHMARK,
    exported_table,
    headline_rows,
    impact_ratio_page,
    impact_ratio_table,
    measured,
    model_card,
)
from plumbline.provenance.tracked_numbers import tracked_name
from plumbline.report.charts.scorecard import scorecard as drawn
from plumbline.report.findings import as_picked, beyond_scorecard, findings
from plumbline.report.numbers import named_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import where
from plumbline.report.scorecard import scorecard
from plumbline.report.sentences import in_sentences, model_sentences
from plumbline.storage.files import csv_bytes, table_bytes

Files = dict[str, bytes]
"""Name -> content, relative to the folder."""


@dataclass(frozen=True)
class HubDataset:
    """A dataset of the Hugging Face Hub: its id, and the commit that was audited."""

    id: str
    revision: str | None = None


def hub_dataset(address: str) -> HubDataset:
    """Return the dataset that an address of the hub names."""
    parsed = parse_dataset_address(address)
    return HubDataset(parsed.repository.removeprefix("datasets/"), parsed.revision)


@dataclass(frozen=True)
class Exported:
    """An audit to hand on.

    Attributes
    ----------
    table : DataFrame
        The metric table.
    reading : Reading
    title : str
    addresses : mapping of str to str
        Model -> address of its checkpoint, where that is known.
    about : mapping of str to mapping
        Model -> what its card says first, title -> text.
    hub : mapping of str to HubDataset
        Dataset -> what it is on the hub, for those that were read there.
    made_at : str or None
        When the audit ended, in ISO 8601.
    suites : sequence of Suite
        Those of the audit's own, beside the published ones.
    """

    table: pl.DataFrame
    reading: Reading
    title: str = "An audit"
    addresses: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hub: Mapping[str, HubDataset] = field(default_factory=dict)
    made_at: str | None = None
    suites: Sequence[Suite] = ()
    _headlines: dict[str, pl.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def models(self) -> list[str]:
        """Return the models, in the order of the table."""
        return [model for model in self.table["model"].unique(maintain_order=True) if model != ALL_MODELS]

    def headlines(self, model: str) -> pl.DataFrame:
        """Return the headline numbers of a model, see `headline_rows`."""
        if not self._headlines:
            self._headlines.update(headline_rows(self.table, self.reading))
        return self._headlines[model]

    @property
    def rows(self) -> pl.DataFrame:
        """Return the metric table with the columns of CLIP_benchmark first."""
        return exported_table(self.table, self.addresses)


def written(audit: Exported, forms: Collection[str] | None = None) -> Files:
    """Return the files of some forms, by default of all.

    Raises
    ------
    ConfigError
        If there is no such form.
    """
    wanted = list(FORMS) if forms is None else list(forms)
    if unknown := [name for name in wanted if name not in FORMS]:
        raise ConfigError("there is no such form of an export", found=", ".join(unknown), expected=", ".join(FORMS))
    files: Files = {}
    for name in wanted:
        files |= FORMS[name](audit)
    return files


def write_files(files: Files, folder: Path) -> list[Path]:
    """Write files into a folder, which is made where it is not there; files of these names are replaced.

    Raises
    ------
    StorageError
        If one would lie elsewhere, see `require_inside`; nothing is written then.
    """
    require_inside(folder, files)
    paths = [folder / name for name in files]
    for path, content in zip(paths, files.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return paths


def require_inside(folder: Path, names: Iterable[str]) -> None:
    """Refuse names of files that would lie outside of a folder; models of a stored table are named by its maker.

    Raises
    ------
    StorageError
        If one leads outside by `..`, as an absolute path or by a link, or holds a character that no name should.
    """
    top = folder.resolve()
    for name in names:
        odd = {"", ".", ".."} & {*name.split("/")} or "\\" in name or UNSAFE.search(name)
        if odd or not (folder / name).resolve().is_relative_to(top):
            raise StorageError(
                "a file of an export would not lie inside its folder, or has a name that no file should have",
                where=folder,
                found=ascii(name),
                expected="a path below the folder, without `..`, links to elsewhere and control characters",
                hint="names of models become names of files: look at the column `model` of the metric table",
            )


def tables(audit: Exported) -> Files:
    """Return the metric table as Parquet and CSV, with Croissant metadata that describes the CSV."""
    content = csv_bytes(audit.rows)
    described = json.dumps(
        croissant(audit.rows, content, title=audit.title, made_at=audit.made_at), indent=1, ensure_ascii=False
    )
    return {
        "metric_table.parquet": table_bytes(audit.rows),
        TABLE: content,
        "croissant.json": f"{described}\n".encode(),
    }


# --- One row a model and dataset, one column a metric, as CLIP_benchmark builds its table.


def clip_benchmark_table(audit: Exported) -> pl.DataFrame:
    """Return a row a model, dataset and task: CLIP_benchmark's columns, `acc1`, and a column a headline number.

    `acc1` is the share of images whose best match among the classes of the Trident suite is their label.
    """
    rows = audit.rows.filter(pl.col("condition") == BEFORE)
    cells = []
    for key, cell in rows.group_by(*CLIP_BENCHMARK, maintain_order=True):
        right = cell.filter(metric="zero_shot_accuracy", statistic="estimate", suite="trident")["value"].to_list()
        of_model = audit.headlines(cell["model"][0]).filter(
            pl.col("dataset") == cell["dataset"][0], pl.col("suite").is_in(cell["suite"].unique().implode())
        )
        numbers = flat_numbers(of_model)
        cells.append(dict(zip(CLIP_BENCHMARK, key)) | {"acc1": right[0] if right else None} | numbers)
    names = dict.fromkeys(name for cell in cells for name in cell)
    schema: Schema = {name: pl.String if name in CLIP_BENCHMARK else pl.Float64 for name in names}
    return pl.DataFrame(cells, schema=schema)


def flat_numbers(headlines: pl.DataFrame) -> dict[str, float]:
    """Return the headline numbers of one model on one dataset, in the scorecard's order: `max_skew/crime/crime/race`.

    Each has a name that MLflow takes, see `tracked_name`.
    """
    return {tracked_name(measured(row).replace(", ", "/")): row["value"] for row in headlines.iter_rows(named=True)}


def clip_benchmark(audit: Exported) -> Files:
    """Return that table as CSV."""
    return {"clip_benchmark.csv": csv_bytes(clip_benchmark_table(audit))}


def numbers(audit: Exported) -> Files:
    """Return one flat dict of the headline numbers, as trackers take them: `faces/clip/max_skew/crime/crime/race`."""
    flat: dict[str, float] = {}
    before = audit.table.filter(pl.col("condition") == BEFORE)
    for dataset, model in before.select("dataset", "model").unique(maintain_order=True).iter_rows():
        found = flat_numbers(audit.headlines(model).filter(pl.col("dataset") == dataset))
        flat |= {f"{dataset}/{model}/{name}": value for name, value in found.items()}
    return {"numbers.json": f"{json.dumps(flat, indent=1, ensure_ascii=False)}\n".encode()}


# --- For the Hugging Face Hub: results that its model page shows, and a section of the model card.


def eval_results(audit: Exported) -> Files:
    """Return for each model with a headline number what goes into the folder `.eval_results` of its repository."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    files: Files = {}
    for model in audit.models:
        headlines = audit.headlines(model)
        if headlines.is_empty():
            continue
        entries = []
        for row in headlines.iter_rows(named=True):
            place = audit.hub.get(row["dataset"], HubDataset(row["dataset"]))
            ends = named_interval(row["ci_low"], row["ci_high"])
            q = "" if row["q"] is None or row["q"] != row["q"] else f", q = {row['q']:.3g}"
            entries.append(
                EvalResultEntry(
                    dataset_id=place.id,
                    dataset_revision=place.revision,
                    task_id="/".join(part.replace(" ", "_") for part in measured(row).split(", ")),
                    value=row["value"],
                    date=audit.made_at,
                    notes=f"{row['definition']}; {ends}{q}, n = {row['n']}; audit {row['audit_id'][:12]}",
                )
            )
        text = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
        files[f"eval_results/{model}.yaml"] = text.encode()
    return files


MOST_BEYOND = 5
"""Findings of bias beyond the scorecard that a card tells, the strongest first."""


def model_cards(audit: Exported) -> Files:
    """Return for each model a section of a model card, with its headline numbers as `model-index` where it has any."""
    known = {"audit": str(audit.table["audit_id"][0])} if audit.table.height else {}
    card = scorecard(audit.table, audit.reading)
    picked, as_told = as_picked(audit.table, audit.reading)
    ranked, files = findings(picked, as_told), {}
    for model in audit.models:
        beyond = beyond_scorecard(model, where(card, model=model).to_dicts(), ranked)
        said = model_sentences(card, model, audit.reading)
        said += map(str, in_sentences(beyond[:MOST_BEYOND], audit.table, picked, as_told))
        if more := len(beyond[MOST_BEYOND:]):
            said.append(f"{more} more {'finding' if more == 1 else 'findings'} of bias: see the report.")
        about = known | dict(audit.about.get(model, {}))
        files[f"model_cards/{model}.md"] = model_card(model, audit.headlines(model), about=about, said=said).encode()
    return files


# --- Croissant: what the columns of the metric table are, in the words of ML Commons.

TABLE = "metric_table.csv"
_KINDS = {pl.String: "sc:Text", pl.Float64: "sc:Float", pl.Int64: "sc:Integer"}
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""As the specification of Croissant 1.0 gives it."""


def croissant(rows: pl.DataFrame, content: bytes, *, title: str, made_at: str | None = None) -> dict[str, Any]:
    """Return Croissant 1.0 metadata of the exported metric table.

    Parameters
    ----------
    rows : DataFrame
        The table, see `exported_table`.
    content : bytes
        Its file.
    """
    descriptions: Mapping[str, Any] = data_yaml("columns.yaml")
    meanings = descriptions["columns"] | descriptions.get("tables", {}).get("metric_table", {})
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"metrics/{name}",
            "name": name,
            "description": meanings.get(name, _OF_EXPORT.get(name, name)),
            "dataType": _KINDS[type(kind)],
            "source": {"fileObject": {"@id": TABLE}, "extract": {"column": name}},
        }
        for name, kind in rows.schema.items()
    ]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": title,
        "description": "Estimates of social bias with intervals, p and q, a row a number, of an audit by Plumbline.",
        "version": "1.0.0",
        **({} if made_at is None else {"datePublished": made_at}),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": TABLE,
                "name": TABLE,
                "contentUrl": TABLE,
                "encodingFormat": "text/csv",
                "sha256": digest_bytes(content),
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "metrics", "name": "metrics", "field": fields}],
    }


_OF_EXPORT = {
    "pretrained": "Address of the checkpoint.",
    "task": "What CLIP_benchmark calls the task.",
    "language": "Language of the prompts.",
    "model_fullname": "Model and address of the checkpoint.",
    "evidence": "What the row is evidence of.",
    "row_id": "Name of the row, for `plumbline explain`.",
}


# --- What people read.


def scorecards(audit: Exported) -> Files:
    """Return the scorecard as CSV, and as a picture where it has an answer."""
    card = scorecard(audit.table, audit.reading)
    chart = drawn(card)
    return {"scorecard.csv": csv_bytes(card)} | ({} if chart is None else {"scorecard.png": chart.png})


def impact_ratios(audit: Exported) -> Files:
    """Return selection rates and impact ratios in the form of New York City's Local Law 144."""
    suites: dict[str, Suite] = {suite.id: suite for suite in all_suites(audit.suites) if suite.family == "outcomes"}
    ratios = impact_ratio_table(audit.table, suites)
    return {"impact_ratios.csv": csv_bytes(ratios), "impact_ratios.md": impact_ratio_page(ratios).encode()}


FORMS: dict[str, Callable[[Exported], Files]] = {
    "tables": tables,
    "clip_benchmark": clip_benchmark,
    "numbers": numbers,
    "eval_results": eval_results,
    "model_cards": model_cards,
    "scorecard": scorecards,
    "impact_ratios": impact_ratios,
}
"""Name -> what writes it."""


# --- Checksum files in the format of `sha256sum`: writing one, and verifying a folder against it.

CHECKSUMS = "SHA256SUMS"
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<path>.+)")


@dataclass(frozen=True)
class Verdict:
    """Result of comparing a folder with its checksum file.

    Attributes
    ----------
    sound : int
        Number of unchanged files.
    missing, changed, extra : tuple of str
        Relative paths; `extra` are files that the checksum file does not list.
    """

    sound: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Return whether every listed file is unchanged, and there is no other."""
        return not (self.missing or self.changed or self.extra)


def write_checksums(folder: Path) -> Path:
    """Write `SHA256SUMS` over all files of a folder, in the order of their paths; `sha256sum -c` reads it too.

    Raises
    ------
    StorageError
        If a name holds a character that the format escapes.
    """
    names = sorted({*plain_files(folder, no="folder to write checksums of")} - {CHECKSUMS})
    if odd := [name for name in names if "\\" in name or "\n" in name or "\r" in name]:
        raise StorageError("a file name cannot stand in a checksum file", where=folder, found=ascii(odd[0]))
    lines = [f"{digest_file(folder / name)}  {name}\n" for name in names]
    path = folder / CHECKSUMS
    path.write_text("".join(lines), "utf-8")
    return path


_LONGEST_LIST = 1 << 28


def verify_folder(folder: Path) -> Verdict:
    """Compare a folder with its checksum file.

    Raises
    ------
    StorageError
        If there is no checksum file, a line of it is none, names a file outside of the folder or one again, or
        something in the folder is a link, a pipe or a device.
    """
    present = {*plain_files(folder, no="folder that `plumbline export` wrote")} - {CHECKSUMS}
    listed = _listed(folder)
    missing = tuple(name for name in listed if name not in present)
    changed = tuple(name for name, sha256 in listed.items() if name in present and digest_file(folder / name) != sha256)
    extra = tuple(sorted(present - set(listed)))
    return Verdict(len(listed) - len(missing) - len(changed), missing, changed, extra)


def require_plain(path: Path, *, kind: Literal["file", "folder"]) -> None:
    """Raise StorageError where a path that is there is no plain file or folder; it is not opened."""
    mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) if kind == "file" else stat.S_ISDIR(mode)):
        raise StorageError(
            f"this is no plain {kind}, and is not handed on",
            where=path,
            found="a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a file, pipe or device",
            expected=f"a {kind} that Plumbline wrote",
        )


def plain_files(folder: Path, *, no: str) -> list[str]:
    """Return the paths of the files below a folder, relative to it; nothing is opened or followed.

    Parameters
    ----------
    no : str
        What the folder is not where something else lies in it, for the message.

    Raises
    ------
    StorageError
        If it or something below it is a link, a pipe or a device, or a folder cannot be listed.
    """
    names: list[str] = []
    folders = [folder]
    while folders:
        listed = folders.pop()
        try:
            entries = [*os.scandir(listed)]
        except OSError as error:
            raise StorageError(
                f"this is no {no}: a folder in it cannot be listed",
                where=printable(str(listed)),
                found=error.strerror or type(error).__name__,
            ) from error
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False):
                names.append(path.relative_to(folder).as_posix())
            else:
                raise StorageError(
                    f"this is no {no}",
                    where=folder,
                    found=f"a link, or no plain file: {path.relative_to(folder).as_posix()!a}",
                    expected="files and folders alone",
                )
    return sorted(names)


def _listed(folder: Path) -> dict[str, str]:
    path, listed = folder / CHECKSUMS, {}
    try:
        if path.stat().st_size > _LONGEST_LIST:
            raise StorageError("this checksum file is longer than any that `plumbline export` writes", where=path)
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            "there is no checksum file to verify", where=path, found=type(error).__name__,
            hint="name a folder that `plumbline export` wrote",
        ) from error  # fmt: skip
    for number, line in enumerate(lines, start=1):
        parts = _LINE.fullmatch(line)
        if parts is None or parts["path"].startswith("/") or ".." in parts["path"].split("/"):
            raise StorageError(
                "this is no line of a checksum file", where=f"{path}:{number}", found=ascii(line[:80]),
                expected="64 hexadecimal digits, two spaces, and a path inside of the folder",
            )  # fmt: skip
        if parts["path"] in listed:
            raise StorageError(
                "a checksum file names a file twice", where=f"{path}:{number}", found=ascii(parts["path"]),
                expected="a line a file",
            )  # fmt: skip
        listed[parts["path"]] = parts["sha256"]
    if not listed:
        raise StorageError("this checksum file names no file", where=path, expected="what `plumbline export` wrote")
    return listed
