"""From what a person names as input to the files of a run."""
