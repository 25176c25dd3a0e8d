"""What tests read back from a page and the parts of a chapter."""


def section(page, anchor):
    """Return the section of a page with this anchor."""
    return page.split(f'<section id="{anchor}"')[1].split("</section>")[0]


def listing(parts, title):
    """Return the table or listing of some parts whose title has this in it."""
    return next(found for part in parts for name, found in (*part.listings, *part.tables) if title in name)
