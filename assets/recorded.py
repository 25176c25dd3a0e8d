"""Assets that remember what they were computed from, and the parts that they are made of."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import dagster as dg

from plumbline.parts import Parts, keeping
from plumbline.provenance.code_versions import parts_of
from plumbline.recording import Recording, recording
from plumbline.storage.builds import Build, read_parts, write_build, write_parts
from resources.workspace import Workspace

CODE_VERSIONS: dict[str, str] = {}
"""Asset -> version of its code, of every asset that was defined with `asset` or `recorded`."""


def asset(*, code_version: str, name: str | None = None, **specification: Any) -> Callable[..., dg.AssetsDefinition]:
    """Define an asset, as `dagster.asset` does, whose reads are recorded; see `recorded`."""

    def define(compute: Callable[..., dg.MaterializeResult]) -> dg.AssetsDefinition:
        named = name or compute.__name__
        return dg.asset(name=named, code_version=code_version, **specification)(
            recorded(compute, **{named: code_version})
        )

    return define


def recorded(compute: Callable[..., Any], **code_versions: str) -> Callable[..., Any]:
    """Let the function of an asset, or of several, keep a `Build` of each when it has ended well.

    Parts that are as they were the last time are taken over, where the code is the same; see `plumbline.parts`.

    Parameters
    ----------
    compute : callable
        Takes the resource `workspace` by its name; returns one `MaterializeResult`, or one for each asset.
    code_versions : str
        By asset.
    """
    CODE_VERSIONS.update(code_versions)

    [first, *_] = code_versions

    @functools.wraps(compute)
    def recording_compute(*arguments: Any, **resources: Any) -> Any:
        try:
            context = dg.AssetExecutionContext.get()
        except dg.DagsterInvariantViolationError:  # called as a function: nothing is materialised
            return compute(*arguments, **resources)
        lake, code = resources["workspace"].lake, code_versions[first]
        partition = str(context.partition_key) if context.has_partition_key else ""
        parts = Parts(read_parts(lake, first, partition, code=code))
        with keeping(parts), recording() as reads:
            results = compute(*arguments, **resources)
        if parts.now and parts.now.keys() != parts.before.keys():
            write_parts(lake, first, partition, parts.now, code=code)
        for result in [results] if isinstance(results, dg.MaterializeResult) else results:
            _keep(context, resources["workspace"], result, reads, code_versions)
        return results

    return recording_compute


def _keep(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    result: dg.MaterializeResult,
    reads: Recording,
    code_versions: dict[str, str],
) -> None:
    names: Iterable[str] = code_versions
    name = result.asset_key.to_user_string() if result.asset_key else next(iter(names))
    assert result.data_version is not None
    build = Build(
        asset=name,
        partition=str(context.partition_key) if context.has_partition_key else "",
        code=code_versions[name],
        inputs=reads.inputs(),
        outputs=[[*written, version] for written, version in reads.written.items()],
        data_version=result.data_version.value,
        run=context.run.run_id,
    )
    write_build(workspace.lake, build, parts=parts_of(build.code))
