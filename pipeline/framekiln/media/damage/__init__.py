"""Damage that libav or Pillow does not report: missing ends, false tables of samples, wrong checksums."""
