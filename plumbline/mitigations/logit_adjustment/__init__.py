"""Adaptive Logit Adjustment: `adjustment` (what it is and how it is fitted), `cells` (of what), `rows` (judged)."""
