"""The charts that several chapters draw, one function each: Vega-Lite for the page, PNG, and Altair for you.

A chart of one chapter stands in that chapter. A chart function takes rows of the metric table and returns a `Chart`, or
None where there is nothing to draw.
"""
