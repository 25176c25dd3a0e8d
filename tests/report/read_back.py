"""What tests read back from a page, a picture and the parts of a chapter."""

import re


def section(page, anchor):
    """Return the part of a page below the heading of this anchor."""
    return page.split(f'<h2 id="{anchor}">')[1].split("</section>")[0]


def tips(svg):
    """Return what the marks of a picture say."""
    return re.findall(r"<(?:use|circle)[^>]*><title>([^<]*)</title>", svg)


def listing(parts, title):
    """Return the table or listing of some parts whose title has this in it."""
    return next(found for part in parts for name, found in (*part.listings, *part.tables) if title in name)
