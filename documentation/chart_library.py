"""The library that draws charts in a browser, as a page holds it: `python -m documentation.chart_library` writes it."""

import zlib
from importlib.metadata import version

import vl_convert

from resources.checkout import PROJECT

VERSION = "1.9.0.post1"
"""Of the vl-convert whose bundle lies in the file."""
FILE = PROJECT / "plumbline" / "report" / "templates" / "vega.js.zlib"


def main() -> None:
    """Write what the installed vl-convert bundles; its version is to be noted as `VERSION`."""
    FILE.write_bytes(zlib.compress(vl_convert.javascript_bundle().encode(), 9))
    print(FILE, version("vl-convert-python"))


if __name__ == "__main__":
    main()
