"""The audit file in force, and where its inputs and results lie."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from upath import UPath

from plumbline.catalog.studies import recognise
from plumbline.catalog.suites import RELEASED, Suite, load_suite
from plumbline.checkpoints.addresses import parse_address
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.checkpoints.pickled import CONVERTED, readable_folder
from plumbline.commands.places import dataset_place, default_home, from_here, here
from plumbline.config.audit import Audit, with_watched
from plumbline.config.entries import DatasetEntry, LvlmEntry
from plumbline.config.file import read_audit
from plumbline.config.own import own_metrics
from plumbline.config.parts import with_current_keys
from plumbline.config.recorded import recorded
from plumbline.digests import digest_json
from plumbline.encoders.folders import checkpoint_files
from plumbline.errors import ConfigError
from plumbline.generators.backend import Decoding
from plumbline.metrics.own import OwnMetric
from plumbline.own_code import code_digest
from plumbline.recording import current, note, unrecorded
from plumbline.storage import Lake, ShardCache
from plumbline.storage.lake import AuditRecord, RecordedLake, SeenLake, named_audit, read_record
from resources.endpoints import changed_endpoint
from resources.watched import watched_checkpoints

if TYPE_CHECKING:
    from plumbline.generators.folders import GeneratorFiles
    from plumbline.generators.stored_answers import StoredAnswers

MLFLOW_PORT = "PLUMBLINE_MLFLOW_PORT"
"""Environment variable in which `plumbline ui` tells Dagster where it serves MLflow."""
_OF_AN_ENDPOINT = ("model", "send_seed", "send_top_k", "defaults")


@lru_cache(maxsize=4)
def _settings(text: str) -> Audit:
    return Audit.model_validate_json(text)


@lru_cache(maxsize=8)
def _local_root(folder: Path) -> UPath:
    return UPath(folder)


def _as_it_was(record: AuditRecord) -> Audit:
    """Return the audit file of a recorded audit; a later version of Plumbline may refuse it."""
    try:
        return _settings(json.dumps(with_current_keys(record.settings)))
    except ValidationError as error:
        raise ConfigError(
            "this version of Plumbline cannot read the settings of that audit",
            where=record.audit_id,
            found=f"{error.error_count()} mistake(s), such as {error.errors()[0]['msg']}",
        ) from error


@dataclass(frozen=True)
class Workspace:
    """The audit file in force, and where its inputs and results lie; relative paths start in the folder of the command.

    Attributes
    ----------
    audit_path : Path
        The audit file.
    home : Path
        `.plumbline` by default: instance, lake, tracking store, planted world, fetched checkpoints.
    past : AuditRecord or None
        The audit of the past whose settings and stored things are meant; None for what is now.
    """

    audit_path: Path
    home: Path
    past: AuditRecord | None = None

    @classmethod
    def from_environment(cls) -> Workspace:
        """Read `PLUMBLINE_AUDIT` (default `audit.yaml`) and `PLUMBLINE_HOME` (default `.plumbline`)."""
        return cls(audit_path=from_here(os.environ.get("PLUMBLINE_AUDIT", "audit.yaml")), home=default_home())

    @classmethod
    def standard(cls) -> Workspace:
        """Return the workspace of the folder itself: `audit.yaml` and `.plumbline`."""
        return cls(audit_path=here() / "audit.yaml", home=here() / ".plumbline")

    def of_audit(self, audit: str) -> Workspace:
        """Return the workspace as it was for a recorded audit: its id, its start, `newest` or `newest~1`."""
        return replace(self, past=read_record(self.lake, named_audit(self.lake, audit)))

    def at_once(self) -> Workspace:
        """Return the workspace at one moment: audit file and manifests are read once, to look many things up."""
        return self if self.past is not None else _SeenWorkspace(self.audit_path, self.home)

    @property
    def audit(self) -> Audit:
        """Read the audit file anew, so that an edit is seen by the next step; watched checkpoints are in it.

        Where a computation is recorded, every setting that is read of it is noted.
        """
        if self.past is not None:
            return _as_it_was(self.past)
        audit = read_audit(self.audit_path)
        if audit.watch is not None:
            audit = with_watched(audit, watched_checkpoints(self.home))
        under_way = current()
        return audit if under_way is None else recorded(audit, under_way)

    def note(self, kind: str, *arguments: object, value: Any) -> None:
        """Note what was read, as `plumbline.recording.note` does; what is of an audit of the past does not change."""
        if self.past is None:
            note(kind, *arguments, value=value)

    @property
    def lake(self) -> Lake:
        """Return the lake under `storage.root`, or what was in it for an audit of the past."""
        return Lake(self._storage_root) if self.past is None else RecordedLake(self._storage_root, self.past)

    @property
    def shards(self) -> ShardCache:
        """Return the cache of embedding shards."""
        return ShardCache(self._storage_root / "embeddings")

    @property
    def training(self) -> ShardCache:
        """Return where the epochs of a training are kept, so that it can be interrupted."""
        return ShardCache(self._storage_root / "training")

    @property
    def answers(self) -> UPath:
        """Return where finished rows of generation are kept, whatever audit asks for them."""
        return self._storage_root / "answers"

    @property
    def scores(self) -> UPath:
        """Return where scores of texts are kept, by the model that said them."""
        return self._storage_root / "scores"

    @property
    def judgements(self) -> UPath:
        """Return where the words that a judge named are kept."""
        return self._storage_root / "judgements"

    @property
    def _storage_root(self) -> UPath:
        # Of now: a record is read from where it lies.
        root = read_audit(self.audit_path).storage.root
        if root and "://" in root:
            # Another process or machine writes there too: what was listed once is not the truth.
            return UPath(root, use_listings_cache=False)
        return _local_root(self.home / "lake" if root is None else from_here(root))

    @property
    def identities(self) -> Path:
        """Return the folder of what generative models on this disk were last found to be."""
        return self.home / "identities"

    @property
    def sizes(self) -> Path:
        """Return the folder of which sizes of weights were found not to be those of their configuration."""
        return self.home / "sizes"

    @property
    def fetched(self) -> Path:
        """Return the folder of checkpoints that `plumbline fetch` got."""
        return self.home / "checkpoints"

    @property
    def dagster_home(self) -> Path:
        """Return the folder of the Dagster instance."""
        return self.home / "dagster"

    @property
    def quality(self) -> Path:
        """Return the folder of what Great Expectations found, with its pages."""
        return self.home / "quality"

    @property
    def report(self) -> Path:
        """Return where the newest report is."""
        return self.home / "report.html"

    @property
    def tracking_uri(self) -> str:
        """Return the MLflow store: `MLFLOW_TRACKING_URI`, or SQLite under the home."""
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.home / 'mlflow.db'}"

    @property
    def tracking_place(self) -> str:
        """Return the MLflow store as it may be printed, without user and password."""
        return re.sub(r"//[^/@]*@", "//", self.tracking_uri)

    @property
    def tracking_file(self) -> Path | None:
        """Return the file of an MLflow store that is SQLite."""
        uri = self.tracking_uri
        return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None

    @property
    def tracking_store(self) -> str | None:
        """Return the digest of the address in `MLFLOW_TRACKING_URI`, which may hold a password; None without one."""
        named = os.environ.get("MLFLOW_TRACKING_URI")
        return digest_json(named) if named else None

    @property
    def tracking_page(self) -> str:
        """Return where a browser finds the store: the server itself, or what `plumbline ui` serves (default: 5000)."""
        port = os.environ.get(MLFLOW_PORT, "5000")
        return self.tracking_uri if self.tracking_uri.startswith("http") else f"http://127.0.0.1:{port}"

    @property
    def tracking_artifacts(self) -> Path:
        """Return where MLflow's artifacts go when the store is the local one."""
        return self.home / "artifacts"

    def dataset_entry(self, dataset: str) -> DatasetEntry:
        """Return a dataset's entry of the audit file."""
        entry = self.audit.datasets.get(dataset)
        if entry is None:
            raise ConfigError("the audit file has no such dataset", where=self.audit_path, found=dataset)
        return entry

    @property
    def own_suites(self) -> tuple[Suite, ...]:
        """Return the suites that the audit file names by a path."""
        with unrecorded():  # what is used of them is noted
            return tuple(self.audit.suites_of_files.values())

    @property
    def own_metrics(self) -> tuple[OwnMetric, ...]:
        """Return the metrics of the audit file's own, each with the version of its code."""
        return own_metrics(self.audit, self.own_code)

    def own_code(self, reference: str) -> str:
        """Return the version of code that the audit file names, and note it."""
        digest = code_digest(reference)
        self.note("own_code", reference, value=digest)
        return digest

    def suite(self, name: str, *, classes: str | None = None, wording: str = RELEASED) -> Suite:
        """Return a suite that the audit file asks, its own or one of `load_suite`."""
        for suite in self.own_suites:
            if suite.id == name:
                note("suite", name, None, RELEASED, value=suite.hash)
                return suite
        return load_suite(name, classes=classes, wording=wording)

    def engine_settings(self) -> dict[str, Any]:
        """Return what the embedding engine is told: rows of a shard and of a batch, workers, decoder."""
        with unrecorded():  # those that could move a number are in `declared_engine`
            audit = self.audit
        engine = audit.engine.model_dump(include={"batch_rows", "workers", "decoder"})
        return {"shard_rows": audit.storage.shard_rows, **engine}

    @property
    def declared_engine(self) -> dict[str, Any]:
        """Return what the audit file says of how models run, as far as it could move a number."""
        audit = self.audit
        return {"device": audit.device, **audit.engine.model_dump(exclude={"workers"})}

    def dataset_root(self, dataset: str) -> Path:
        """Return a dataset's folder; a folder of the planted world is written on first use."""
        with unrecorded():  # what is read of it is noted by who reads it
            root = self.dataset_entry(dataset).root
        return dataset_place(root, home=self.home)

    def checkpoint_folder(self, address: str) -> Path:
        """Return where the checkpoint of an address lies, whether it is there or not."""
        return parse_address(address, project=here()).folder_in(self.fetched)

    def encoder_folder(self, encoder: str) -> Path:
        """Return where an encoder's checkpoint lies as the libraries read it: converted, where it was a pickle."""
        entry = self.audit.encoders[encoder]
        folder = self.checkpoint_folder(entry.address)
        of, kept = f"encoder `{encoder}`", self.fetched / CONVERTED
        return readable_folder(folder, of, kept=kept, model=entry.model, project=here())

    def checkpoint(self, encoder: str, *, sizes: Path | None = None) -> CheckpointFiles:
        """Return the files of an encoder's checkpoint with their digests, read from disk now."""
        with unrecorded():  # where it lies is not what it is
            entry = self.audit.encoders.get(encoder)
        if entry is None:
            raise ConfigError("the audit file has no such encoder", where=self.audit_path, found=encoder)
        files = checkpoint_files(
            encoder,
            entry.address,
            project=here(),
            fetched=self.fetched,
            family=entry.family,
            model=entry.model,
            embeddings=entry.embeddings,
            sizes=sizes,
        )
        self.note("encoder_checkpoint", encoder, value=files.version)
        return files

    def lvlm_entry(self, model: str) -> LvlmEntry:
        """Return a generative model's entry of the audit file."""
        entry = self.audit.lvlms.get(model)
        if entry is None:
            raise ConfigError("the audit file has no such generative model", where=self.audit_path, found=model)
        return entry

    def lvlm_files(self, model: str, *, sizes: Path | None = None) -> GeneratorFiles:
        """Return the files of a generative model's checkpoint with their digests, read from disk now."""
        from plumbline.generators.folders import generator_files

        entry = self.lvlm_entry(model)
        if entry.address is None:
            raise ConfigError("this model is no checkpoint: it has no files", where=self.audit_path, found=model)
        return generator_files(
            model, entry.address, project=here(), fetched=self.fetched, thinking=entry.thinking, sizes=sizes
        )

    def decoding(self, model: str) -> Decoding:
        """Return how a generative model draws tokens: as its entry says, else as all do, else as its own file says."""
        entry, general = self.lvlm_entry(model), self.audit.generation.decoding
        return Decoding(**{**self.own_decoding(model), **general.values, **entry.decoding.values})

    def own_decoding(self, model: str) -> dict[str, float]:
        """Return what of its decoding a checkpoint on this disk says itself and the audit file does not."""
        from plumbline.generators.folders import DRAWN_AS, own_decoding

        entry, general = self.lvlm_entry(model), self.audit.generation.decoding
        if entry.address is None:
            return {}
        own_values = own_decoding(self.checkpoint_folder(entry.address))
        stated = {*general.values, *entry.decoding.values}
        return {
            key: kind(own_values[key]) for key, (kind, _) in DRAWN_AS.items() if key in own_values and key not in stated
        }

    def image_tokens(self, model: str) -> int | None:
        """Return how many tokens an image is to a generative model; None where nobody says it."""
        from plumbline.generators.folders import image_tokens

        entry = self.lvlm_entry(model)
        if model in self.audit.base_llms:
            return 0
        if entry.address is not None and (tokens := image_tokens(self.checkpoint_folder(entry.address))) is not None:
            return tokens
        if entry.endpoint is not None and entry.endpoint.image_tokens is not None:
            return entry.endpoint.image_tokens
        known = recognise(entry.endpoint.model if entry.endpoint else entry.address or "")
        return None if known is None else known.image_tokens

    def stored_answers(self, model: str) -> StoredAnswers:
        """Return the answers of a model that were given elsewhere; they are not read yet.

        Raises
        ------
        ConfigError
            If a file is not there, or the model is another kind.
        """
        from plumbline.generators.stored_answers import StoredAnswers

        settings = self.lvlm_entry(model).answers
        if settings is None:
            raise ConfigError("this model has no stored answers", where=self.audit_path, found=model)
        roots = tuple(self.dataset_root(dataset) for dataset in self.audit.designs_of(model))
        return StoredAnswers(settings, tuple(self.user_file(path) for path in settings.files), roots)

    def endpoint_change(self, model: str) -> str | None:
        """Return what tells an endpoint from what it first said that it is; None while it is the same."""
        endpoint = self.lvlm_entry(model).endpoint
        return changed_endpoint(self.home, model) if endpoint is not None and endpoint.follow else None

    def lvlm_version(self, model: str) -> str:
        """Return the version of a generative model: its files' content, or what an endpoint is asked for and is."""
        with unrecorded():
            version = self._lvlm_version(model)
        self.note("lvlm_checkpoint", model, value=version)
        return version

    def _lvlm_version(self, model: str) -> str:
        entry = self.lvlm_entry(model)
        if entry.endpoint is not None:
            # Where it is served, and at what price, is no part of what answers.
            endpoint = entry.endpoint.model_dump(mode="json", include=set(_OF_AN_ENDPOINT))
            changed = self.endpoint_change(model)
            return digest_json(endpoint if changed is None else [endpoint, changed])
        if entry.answers is not None:
            return self.stored_answers(model).identity
        files = self.lvlm_files(model)
        switched = [] if files.thinking is None else [files.thinking]
        return digest_json([files.family, files.digest, *switched])

    def user_file(self, path: str) -> Path:
        """Return the place of a file that the audit file names; relative paths start in the folder of the command.

        Raises
        ------
        ConfigError
            If there is no such file.
        """
        place = from_here(path)
        if not place.is_file():
            raise ConfigError(
                "a file that the audit file names is not there",
                where=self.audit_path,
                found=path,
                expected=f"a file at {place}: relative paths start in the folder of the command",
            )
        return place


class _SeenWorkspace(Workspace):
    @cached_property
    def audit(self) -> Audit:
        return super().audit

    @cached_property
    def lake(self) -> Lake:
        return SeenLake(self._storage_root)
