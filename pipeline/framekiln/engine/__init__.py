"""Steps on Ray Data. No other package imports Ray.

session         a connection to Ray, and its machines
coordinator     the actor that collects events, attempts and errors of all workers
workers         the functions and actors that Ray calls
shutdown        the end of a dataset, also by Ctrl-C
node_samplers   metrics of the machines, four times a second
prometheus      live metrics for Ray's agent
logs            the last lines of a dead worker's log
datasets        datasets of sealed packets through all steps

This file imports none of them: the coordinator needs no Ray Data, which takes a processor second to import.
"""
