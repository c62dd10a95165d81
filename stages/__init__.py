"""The stages: a folder each, with its class in `stage.py`, re-exported for `use:` in pipeline files."""
