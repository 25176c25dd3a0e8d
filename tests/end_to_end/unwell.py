"""A code location for a real daemon: one asset hangs, one hangs only the first time that it is run."""

import os
import time
from pathlib import Path

import dagster as dg

RAN = "ran"


def _begin(context: dg.AssetExecutionContext) -> None:
    with (Path(os.environ["DAGSTER_HOME"]) / RAN).open("a") as file:
        file.write(f"{context.run.run_id} {os.getpid()}\n")


@dg.asset(pool="gpu")
def hangs(context: dg.AssetExecutionContext) -> None:
    _begin(context)
    time.sleep(600)


@dg.asset(pool="gpu")
def hangs_once(context: dg.AssetExecutionContext) -> None:
    _begin(context)
    if context.run.parent_run_id is None:
        time.sleep(600)


defs = dg.Definitions(
    assets=[hangs, hangs_once],
    jobs=[dg.define_asset_job("hang", "hangs"), dg.define_asset_job("crash", "hangs_once")],
    executor=dg.in_process_executor,
)
