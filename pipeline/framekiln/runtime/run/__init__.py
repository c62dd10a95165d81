"""One run, as the driver sees it: its request, its files, the reasons for its work, its result and its record."""
