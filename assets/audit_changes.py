"""A comparison made ready to be shown: what got worse, and small pictures of the images that flipped."""

from assets.audit_comparison import AuditDiff
from assets.audit_diff import diff_of, judged_of
from plumbline.errors import PlumblineError
from plumbline.provenance.explanation import thumbnail
from plumbline.report.changes import Changes, Preview
from plumbline.storage import Committed
from resources.workspace import Workspace


def changes_of(workspace: Workspace, diff: AuditDiff, *, names: tuple[str, str], old_audit: str) -> Changes:
    """Return a comparison with what is shown of it.

    Parameters
    ----------
    names : (str, str)
        What the two sides are called.
    old_audit : str
        Its datasets have the images that flipped.
    """
    changes = Changes(
        *names,
        differences=judged_of(workspace, diff.differences),
        flips=diff.flips,
        causes=diff.causes,
        absent=diff.absent,
        not_compared=diff.not_compared,
    )
    past = workspace.of_audit(old_audit)
    previews = {row["image_id"]: _preview(past, row) for row in changes.shown_flips}
    return Changes(**vars(changes) | {"previews": previews})


def changes_since(workspace: Workspace, table: Committed) -> Changes | None:
    """Return what changed since the audit before the one with this metric table; None where there was none."""
    stored = diff_of(workspace, table)
    if stored is None:
        return None
    details = stored.details
    diff = AuditDiff(
        stored.differences, stored.flips, details["causes"], details["absent"], details.get("not_compared", [])
    )
    names = (f"audit {details['old'][:12]} of {details['old_made_at']}", "this audit")
    return changes_of(workspace, diff, names=names, old_audit=details["old"])


def _preview(workspace: Workspace, row: dict[str, str]) -> Preview:
    if not workspace.audit.shows_pictures(row["dataset"]):
        return Preview(None, "its picture is not shown, see `pictures` of the audit file")
    try:
        path = workspace.dataset_root(row["dataset"]) / row["path"]
    except PlumblineError as error:
        return Preview(None, error.what)
    seen = thumbnail(path, row["image_id"], row["path"])
    return Preview(seen.source, seen.missing)
