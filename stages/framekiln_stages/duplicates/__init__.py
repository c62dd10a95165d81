"""Copies of pictures and of parts of films over a whole run, and the one of each group to keep."""

from framekiln_stages.duplicates.fingerprint import Fingerprint as Fingerprint
from framekiln_stages.duplicates.stage import Duplicates as Duplicates
