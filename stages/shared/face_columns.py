"""Metadata of the column of faces, for stages that read it."""

NETWORK = b"network"
"""Key in the metadata of the column for the recognition network; embeddings of two networks cannot be compared."""
