"""The command line, writing down for each result which functions of the project ran while it was computed.

The file named by `PLUMBLINE_TRACED` gets a JSON object a line: `asset`, and `ran`, which has for each function, as
`module:function`, the names that it uses. What a function of `APART` calls is left out, itself included.
"""

import functools
import json
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("plumbline", "assets", "resources")
APART = {
    # What they find is noted, and looked up again by the next audit: it counts by value, whatever code found it.
    "assets.asked_cells:declaration_of": "noted as `declaration`",
    "assets.cells:StoredCell.suites_of": "noted as `suites_of_cell`",
    "assets.sources:dataset_versions": "noted as `dataset_folder`",
    "assets.up_to_date:Present": "the rule itself: which cells have numbers is noted as `standing`",
    "assets.stored_predictions:held_by": "which suites a cell has: its own results note it as `suites_of_cell`",
    "plumbline.catalog.suites:load_suite": "noted as `suite`",
    "plumbline.version:": "noted as `plumbline`",
    "plumbline.metrics.text_space:TEXT_SPACE_SUITES": "part of the geometry's own version, which its identity has",
    "plumbline.config.": "settings are noted by value",
    "resources.encoders:encoder_runtime": "noted as `encoder_runtime`",
    "resources.lvlms:scorer_version": "noted as `scorer`",
    "resources.workspace:Workspace.checkpoint": "noted as `encoder_checkpoint`",
    "resources.workspace:Workspace.lvlm_version": "noted as `lvlm_checkpoint`",
    # They decide whether something is computed, not what.
    "assets.checks:must_pass": "names the checks that count",
    "assets.gates:require_passed": "refuses what has not passed its checks",
    "assets.up_to_date:require_up_to_date": "refuses what is computed from something out of date",
    "plumbline.checkpoints.operators:": "has torchvision's operators declared where its build lacks them",
    "plumbline.encoders.families:require": "refuses what a family cannot answer",
    # Dear: their versions are declared, and guarded by tests/fingerprints.
    "assets.images:embed_listed": "embeds images",
    "plumbline.encoders.embedding:embed_texts": "embeds texts",
    "plumbline.encoders.embedding:TEXT_BATCH_ROWS": "how many of them at once",
    "resources.encoders:EncoderPool.get": "loads an encoder",
    # Shown while it is computed, in Dagster's pages or beside the report; no table has it.
    "assets.pictures:charts_of": "charts for Dagster and MLflow",
    "assets.progress:": "the line of progress",
    "assets.results:": "metadata of Dagster; the data version is the digest of what was stored",
    "plumbline.encoders.embedding:Embedded.counters": "how much work it was",
    "resources.quality:Quality.index": "the list of the pages of Great Expectations",
    "plumbline.metrics.own:OWN_METRICS": "tells the family of own metrics from the others",
    # They hold what they are given, whatever it is.
    "assets.images:stored_embeddings": "stored shards are given back as they are",
    "assets.partitions:": "names of partitions",
    "plumbline.concurrency:": "which thread does it",
    "plumbline.recording:": "the notes themselves",
    "plumbline.storage.": "what is stored is given back as it is",
    "resources.workspace:": "where things lie",
}
"""Function, class or module of what is no part of a version -> why."""

_RUNNING, _KNOWN, _CACHES = {}, {}, []
_lru_cache, _start = functools.lru_cache, threading.Thread.start


def _known_lru_cache(*arguments, **named):
    """Make a cache that can be emptied: what it holds would hide who else calls a function."""

    def decorate(function):
        cached = _lru_cache(*arguments, **named)(function)
        _CACHES.append(cached)
        return cached

    if arguments and callable(arguments[0]):
        function, arguments = arguments[0], ()
        return decorate(function)
    return decorate


def _name(code):
    """Return `module:function` of code of the project; nothing of other code."""
    from resources.checkout import PROJECT

    if not code.co_filename.startswith(f"{PROJECT}/"):
        return None
    path = code.co_filename.removeprefix(f"{PROJECT}/").removesuffix(".py").removesuffix("/__init__")
    name = f"{path.replace('/', '.')}:{code.co_qualname}"
    return name if name.partition(".")[0] in PACKAGES and not name.endswith(":<module>") else None


def _known(code):
    """Return the code, its name, and whether it is apart; by its id, since to hash code takes long."""
    if (known := _KNOWN.get(id(code))) is None:
        name = _name(code)
        known = _KNOWN[id(code)] = (code, name, (name or "").startswith(tuple(APART)))
    return known


def _runs_apart(frame):
    while frame is not None:
        if _known(frame.f_code)[2]:
            return True
        frame = frame.f_back
    return getattr(threading.current_thread(), "runs_apart", False)


def _started(thread):
    thread.runs_apart = _runs_apart(sys._getframe(1))
    _start(thread)


def _called(frame, event, _):
    code, name, _ = _known(frame.f_code)
    if name is not None and name not in _RUNNING and not _runs_apart(frame):
        _RUNNING[name] = code


def _trace(recorded):
    """Trace what runs while something is recorded, and write it down when its build is."""
    recording, write_build = recorded.recording, recorded.write_build

    @contextmanager
    def traced_recording():
        _RUNNING.clear()
        for cached in _CACHES:
            if not cached.__module__.startswith("plumbline.provenance"):
                cached.cache_clear()
        threading.settrace(_called)
        sys.settrace(_called)
        try:
            with recording() as reads:
                yield reads
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def traced_write_build(lake, build, *, parts):
        ran = {name: sorted(code.co_names) for name, code in _RUNNING.items()}
        with Path(os.environ["PLUMBLINE_TRACED"]).open("a") as file:
            file.write(json.dumps({"asset": build.asset, "ran": ran}) + "\n")
        write_build(lake, build, parts=parts)

    recorded.recording, recorded.write_build = traced_recording, traced_write_build


if __name__ == "__main__":
    functools.lru_cache, threading.Thread.start = _known_lru_cache, _started
    import assets.recorded

    _trace(assets.recorded)
    from orchestration.command_line import main

    main()
