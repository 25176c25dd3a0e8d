"""The default IO manager is a refusal: results go to the lake, and nothing is ever pickled."""

from typing import Any

import dagster as dg

from plumbline.errors import StorageError


class NoPickles(dg.IOManager):
    """Refuses every value that an asset returns: assets commit to the lake and return a `MaterializeResult`."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Accept nothing but the absence of a value."""
        if obj is not None:
            raise StorageError(
                "an asset returned a value; values are not pickled",
                where=context.asset_key.to_user_string() if context.has_asset_key else context.step_key,
                found=type(obj).__name__,
                expected="a MaterializeResult after a commit to the lake",
            )

    def load_input(self, context: dg.InputContext) -> Any:
        """Refuse to load: assets read from the lake by name and partition."""
        raise StorageError(
            "an asset asked Dagster for the value of another", expected="a read from the lake", where=context.name
        )
