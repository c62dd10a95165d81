"""From a user's inputs to the files of a run."""
