"""One run, as the driver sees it: its request, files, reasons, result and record."""
