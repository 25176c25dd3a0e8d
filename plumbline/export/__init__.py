"""An audit as a folder that can be handed on: tables, provenance, model cards, impact ratios, checksums."""
