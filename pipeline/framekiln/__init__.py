"""Framekiln: photos and clips in, one table row a frame out, and a record of where the time went."""
