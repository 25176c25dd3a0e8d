"""Tables and figures from frames; the HTML report."""
