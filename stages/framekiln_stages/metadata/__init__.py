"""What cameras and editors wrote into a file: when, where, with what, and how it was exposed."""

from framekiln_stages.metadata.stage import Metadata as Metadata
