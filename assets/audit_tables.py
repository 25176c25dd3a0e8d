"""Tables over a whole audit: read only where they were made of the metric table that is meant."""

import polars as pl

from plumbline.storage import Committed
from resources.workspace import Workspace


def committed_of_audit(workspace: Workspace, name: str, table: Committed) -> Committed | None:
    """Return the manifest of a table that was made of this metric table; None if there is none, or one of another."""
    committed = workspace.lake.committed(name)
    return committed if committed and committed.details["audit_id"] == table.details["audit_id"] else None


def table_of_audit(workspace: Workspace, name: str, table: Committed) -> pl.DataFrame | None:
    """Return a table that was made of this metric table; None if there is none, or one of another."""
    committed = committed_of_audit(workspace, name, table)
    return None if committed is None else workspace.lake.read_table(name, manifest=committed)
