"""Steps on Ray Data. No other package imports Ray.

session         a connection to Ray, its machines, and a folder for a local Ray that no other user can enter
private         Ray's private parts
coordinator     the actor with the run's state; metrics of machines and for Prometheus
datasets        datasets of sealed packets through all steps
workers         the functions and actors that Ray calls
death_watch     the end of a dataset, also by Ctrl-C; processes that keep dying

This file imports none of them: the coordinator needs no Ray Data, which takes a processor second to import.
"""
