"""The formats by name, a module each, imported when needed.

A format is a subclass of `framekiln.export.formats.base.Format` named `Writer` in its module.
"""

from importlib import import_module

from framekiln.export.formats.base import Format

FORMATS = ("coco", "yolo", "cvat", "labelstudio", "mot", "folder", "webdataset", "hf", "lance")
"""Formats of frames; each is the name of its module."""


def find_format(name: str) -> type[Format]:
    """Return the writer of one of `FORMATS`."""
    writer: type[Format] = import_module(f"framekiln.export.formats.{name}").Writer
    return writer
