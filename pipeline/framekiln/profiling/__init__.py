"""Records and metrics of a run, statistics over them, and advice on its bottleneck."""
