"""Great Expectations: one validation a check, kept with its Data Docs on disk."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import polars as pl

from plumbline.digests import digest_file
from resources.workspace import Workspace

# One asset for all checks: for each further one the whole project file would be written again.
_DATASOURCE, _ASSET, _BATCH = "plumbline", "facts", "whole table"


class _Opened(NamedTuple):
    """A context, and the project file as it left it."""

    context: Any
    file_sha256: str | None


@dataclass(frozen=True)
class Validation:
    """The outcome of one check.

    Attributes
    ----------
    passed : bool
    unmet : list of dict
        `expectation, on, observed`, one for every expectation that was not met.
    expectations : int
        How many were tested.
    docs : str
        Address of the page with these results.
    """

    passed: bool
    unmet: list[dict[str, str]]
    expectations: int
    docs: str


class Quality:
    """Runs validations in a file context under `.plumbline/quality`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._opened: _Opened | None = None

    def validate(self, name: str, frame: pl.DataFrame, expectations: Callable[[Any], Sequence[Any]]) -> Validation:
        """Validate a frame and keep the result with a page of its own; see `index` for the page that leads there.

        Parameters
        ----------
        name : str
            Suite name, such as `fairface.label_balance`.
        expectations : callable
            Given `great_expectations.expectations`, returns the expectations. A callable, since importing the
            package takes seconds.
        """
        with self._project() as context:
            import great_expectations as gx

            suite = context.suites.add_or_update(
                gx.ExpectationSuite(name=name, expectations=list(expectations(gx.expectations)))
            )
            definition = context.validation_definitions.add_or_update(
                gx.ValidationDefinition(name=name, data=self._batch(context), suite=suite)
            )
            result = definition.run(batch_parameters={"dataframe": frame.to_pandas()})
            page = _document(context, suite, result)
        unmet = [_unmet(item) for item in result.results if not item.success]
        return Validation(bool(result.success), unmet, len(result.results), page)

    def index(self) -> None:
        """Write the page that leads to all results. It grows with each of them: once an audit, not once a check."""
        with self._project() as context:
            if results := context.validation_results_store.list_keys():
                # Only the pages that are named are written again, and the index with them.
                context.build_data_docs(resource_identifiers=results[-1:])

    @contextmanager
    def _project(self) -> Iterator[Any]:
        """Open the project, and keep other processes out: Great Expectations rewrites its file in place.

        Opening takes longer than a check, so that the last one is kept while no other process has written the file.
        """
        self._workspace.quality.mkdir(parents=True, exist_ok=True)
        with (self._workspace.quality / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            opened, self._opened = self._opened, None
            current = opened is not None and opened.file_sha256 == self._file_sha256()
            context = opened.context if opened and current else self._open()
            yield context
            self._opened = _Opened(context, self._file_sha256())

    def _file_sha256(self) -> str | None:
        path = self._workspace.quality / "gx" / "great_expectations.yml"
        return digest_file(path) if path.is_file() else None

    def _open(self) -> Any:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig

        _compile_templates_once()
        context = gx.get_context(mode="file", project_root_dir=str(self._workspace.quality))
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        return context

    @staticmethod
    def _batch(context: Any) -> Any:
        known = context.data_sources.all()
        source = known[_DATASOURCE] if _DATASOURCE in known else context.data_sources.add_pandas(_DATASOURCE)
        there = _ASSET in source.get_asset_names()
        asset = source.get_asset(_ASSET) if there else source.add_dataframe_asset(_ASSET)
        batches = {batch.name: batch for batch in asset.batch_definitions}
        return batches.get(_BATCH) or asset.add_batch_definition_whole_dataframe(_BATCH)


@cache
def _compile_templates_once() -> None:
    """Let all pages share their compiled templates: Great Expectations compiles them for every page anew."""
    from great_expectations.render.view.view import DefaultJinjaView
    from jinja2 import BytecodeCache

    class Compiled(BytecodeCache):
        def __init__(self) -> None:
            self.codes: dict[tuple[str, str], Any] = {}

        def load_bytecode(self, bucket: Any) -> None:
            bucket.code = self.codes.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Any) -> None:
            self.codes[bucket.key, bucket.checksum] = bucket.code

    make, compiled = DefaultJinjaView.__init__, Compiled()

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        self.env.bytecode_cache = compiled

    DefaultJinjaView.__init__ = made


def _document(context: Any, suite: Any, result: Any) -> str:
    """Write the Data Docs page of one result, not the whole site again, and return its address."""
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    written = ValidationResultIdentifier(
        expectation_suite_identifier=ExpectationSuiteIdentifier(name=suite.name),
        run_id=result.meta["run_id"],
        batch_identifier=result.batch_id,
    )
    context.build_data_docs(resource_identifiers=[written], build_index=False)
    return str(context.get_docs_sites_urls(resource_identifier=written)[0]["site_url"])


def _unmet(item: Any) -> dict[str, str]:
    config = item.expectation_config
    on = ", ".join(str(value) for key, value in config.kwargs.items() if key.startswith("column"))
    result = item.result
    observed = result.get("observed_value", result.get("partial_unexpected_list", item.exception_info))
    if isinstance(observed, list):
        observed = ", ".join(str(getattr(value, "item", lambda v=value: v)()) for value in observed[:5])
    return {"expectation": config.type.removeprefix("expect_"), "on": on, "observed": str(observed)[:200]}
