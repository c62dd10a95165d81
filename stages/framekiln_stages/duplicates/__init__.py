"""Copies of pictures and of parts of videos over a whole run, and the one of each group to keep."""

from framekiln_stages.duplicates.fingerprint import Fingerprint as Fingerprint
from framekiln_stages.duplicates.stage import Duplicates as Duplicates
