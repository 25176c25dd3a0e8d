"""The command that says what an audit would still do: images, answers, time, disk and cost."""

from typing import Annotated

import typer

from orchestration.audit_file import stored_workspace_of
from plumbline.commands.terminal import ConfigOption

# Nobody's measurement: what one GPU of a data centre does not fall short of with ViT-L/14 and decoding by a few cores
# (clip-retrieval publishes 312 images/s for one A100), and round numbers for pairs and tokens.
_IMAGES, _PAIRS, _TOKENS = 200.0, 1_000.0, 1_000.0


def plan_command(
    config: ConfigOption = None,
    images_per_second: Annotated[
        float | None,
        typer.Option(min=0.001, help=f"Images embedded per second on your device; {_IMAGES:,.0f} is assumed."),
    ] = None,
    pairs_per_second: Annotated[
        float | None, typer.Option(min=0.001, help=f"BridgeTower pairs per second; {_PAIRS:,.0f} is assumed.")
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001, help=f"New tokens per second of a model that has not run yet; {_TOKENS:,.0f} is assumed."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.001, max=0.999, help="Share of images with a harmful label, for what can be found.")
    ] = 0.1,
) -> None:
    """Show the work left in the audit: images and prompts, answers and tokens, time, disk and cost.

    Nothing is started: no model is loaded, no endpoint is asked. Data and weights need not be there: a
    dataset of the studies that is not on this disk counts with its published size. What is there already is not done
    again; a dataset that changed since it was read is read anew. Of datasets that have been read it says which
    difference between groups 80% of such audits would find. Exits with 2 where `generation.limit` of the audit file is
    exceeded.
    """
    from orchestration.planned import Rate, print_plan

    print_plan(
        stored_workspace_of(config),
        images=Rate("--images-per-second", images_per_second, _IMAGES),
        pairs=Rate("--pairs-per-second", pairs_per_second, _PAIRS),
        tokens=Rate("--tokens-per-second", tokens_per_second, _TOKENS),
        rate=rate,
    )
