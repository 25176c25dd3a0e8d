"""New checkpoints in the watched folder: found once they are complete, and audited like one that is known."""

from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from assets.asked_cells import cell_suites, require_mitigations
from orchestration.observing import new_partitions
from plumbline.checkpoints.folders import require_complete
from plumbline.commands.places import from_here
from plumbline.config.entries import Watch
from plumbline.config.values import SLUG
from plumbline.encoders.families import require_suites
from plumbline.encoders.folders import checkpoint_contents
from plumbline.errors import ConfigError, PlumblineError
from plumbline.generators.folders import generator_contents
from plumbline.visible import visible
from resources.watched import keep_watched, kept_checkpoints, watched_checkpoints
from resources.workspace import Workspace


@dataclass
class WatchedCheckpoints:
    """What is in the watched folder.

    Attributes
    ----------
    checkpoints : dict of str to str
        Id -> folder, of those that are complete and can be audited.
    added : list of str
        Those among them that were not known.
    refused : dict of str to str
        Name of a folder -> why it is not audited.
    """

    checkpoints: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Return it in words."""
        lines = [f"{name} is audited now" for name in self.added]
        # On one line: an escaped end of a line in a refusal is hard to read.
        whys = {name: "; ".join(part.strip() for part in why.splitlines()) for name, why in self.refused.items()}
        lines += [f"{visible(name)} is not audited: {visible(why)}" for name, why in whys.items()]
        return "; ".join(lines) or f"{len(self.checkpoints)} checkpoint(s), all known"


def find_checkpoints(workspace: Workspace) -> WatchedCheckpoints:
    """Look into the watched folder and keep what is in it; without one nothing is found.

    Raises
    ------
    ConfigError
        If the folder is not there.
    """
    audit, watched = workspace.audit, WatchedCheckpoints()
    if audit.watch is None:
        return watched
    folder = from_here(audit.watch.folder)
    if not folder.is_dir():
        raise ConfigError(
            "the watched folder is not there",
            where=workspace.audit_path,
            found=str(folder),
            expected="a folder that holds a folder for each checkpoint",
        )
    known = watched_checkpoints(workspace.home)
    for path in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        name = path.name
        if known.get(name) == str(path):
            watched.checkpoints[name] = str(path)
            continue
        try:
            _require_usable(workspace, audit.watch, path)
        except PlumblineError as error:
            watched.refused[name] = str(error)
            continue
        watched.checkpoints[name] = str(path)
        watched.added.append(name)
    # What is gone is forgotten: when it comes again it is looked at like a new one, which may be half copied.
    if watched.checkpoints != kept_checkpoints(workspace.home):
        keep_watched(workspace.home, watched.checkpoints)
    return watched


def _require_usable(workspace: Workspace, watch: Watch, path: Path) -> None:
    name, audit = path.name, workspace.audit
    if not SLUG.fullmatch(name):
        raise ConfigError("not an id", found=name, expected="lower-case letters, digits, `.`, `_` and `-`")
    if name in audit.encoders or name in audit.lvlms:
        raise ConfigError("the audit file has a model of this name", found=name, expected="another name")
    if watch.like in audit.lvlms:
        contents = generator_contents(path, name).contents
    else:
        family, contents = checkpoint_contents(path, encoder=name, family=audit.encoders[watch.like].family)
        # It must answer what the other one is asked by name.
        for dataset, model in audit.cells:
            if model == watch.like:
                require_suites(family.name, cell_suites(workspace, dataset, model, family=family))
                require_mitigations(workspace, dataset, model, family=family)
    for each in contents.weights:
        require_complete(each)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Adds checkpoints from the watched folder of the audit file once they are complete, and reports those "
    "that are not audited, with the reason.",
)
def watch_folder(context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]) -> dg.SensorResult:
    """Look into the watched folder."""
    try:
        checkpoints = find_checkpoints(workspace)
    except PlumblineError as error:
        return dg.SensorResult(skip_reason=dg.SkipReason(str(error)))
    if workspace.audit.watch is None:
        return dg.SensorResult(skip_reason=dg.SkipReason("the audit file has no `watch`"))
    for name, why in checkpoints.refused.items():
        context.log.warning("%s is not audited: %s", name, why)
    return dg.SensorResult(
        skip_reason=dg.SkipReason(checkpoints.summary),
        dynamic_partitions_requests=new_partitions(context.instance, workspace),
    )
