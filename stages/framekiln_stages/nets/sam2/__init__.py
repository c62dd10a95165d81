"""SAM 2.1 for images and videos, and EdgeTAM."""
