"""The charts of the report, one function each: Vega-Lite for the page, PNG for Dagster and MLflow, Altair for you.

A chart function takes rows of the metric table and returns a `Chart`, or None where there is nothing to draw.
"""
