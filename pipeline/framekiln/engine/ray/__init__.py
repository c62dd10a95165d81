"""Steps on Ray Data. No other package imports Ray.

This file imports nothing: the coordinator needs no Ray Data, which takes a CPU second to import.
"""
