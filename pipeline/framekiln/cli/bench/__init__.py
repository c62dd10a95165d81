"""`framekiln bench`, and its options by what is measured."""

from __future__ import annotations
