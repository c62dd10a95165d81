"""What the column of faces says about itself, for stages that read it."""

NETWORK = b"network"
"""Key in the metadata of the column for the recognition network; embeddings of two networks cannot be compared."""
