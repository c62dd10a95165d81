"""Names of units: those of earlier versions, formed by other rules for photos, are never used again."""

from __future__ import annotations

from pipeline.media import units
from pipeline.media.files import MediaFile


def test_other_rules_for_photos_give_other_names(monkeypatch):
    """An output whose `units/` were lost would else join rows that an earlier version counted otherwise."""
    media = [MediaFile(media_id=name, path=name, size=1, mtime_ns=1) for name in ("a", "b")]
    names = []
    for rules in (0, units.READ_RULES, units.READ_RULES):
        monkeypatch.setattr(units, "READ_RULES", rules)
        names.append([unit.name for unit in units.form_units(media, slots=1)])
    assert names[1] == names[2] and not set(names[0]) & set(names[1])
