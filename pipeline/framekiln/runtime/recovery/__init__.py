"""Recovery from failing files, rows and processes during a run."""
