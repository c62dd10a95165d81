"""The durable state of an output: stored objects, finished parts, units of files, and the lease of the run."""
