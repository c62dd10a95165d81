"""Steps on Ray Data. No other package imports Ray.

session          a connection to Ray, and its machines
local_start      the start of a local Ray, tried again where it fails
own_processes    its processes: parts of this one, and waited for longer
private_folder   a folder for a local Ray that no other user can enter
services         Ray's own processes, which may die
coordinator      the actor with the run's state
datasets         datasets of sealed packets through all steps
workers          the functions and actors that Ray calls
node_samplers    metrics of every machine
prometheus       live metrics for Ray's agent
death_watch      processes that keep dying
shutdown         the end of a dataset, also by Ctrl-C
logs             the last lines of a dead worker's log

This file imports none of them: the coordinator needs no Ray Data, which takes a processor second to import.
"""
