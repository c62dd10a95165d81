"""Steps to processes on machines.

placement        workers, cores and GPU shares of each step
process_groups   steps that share a process
waves            readings of the media, where a GPU does not hold all models
resources        the machines, and the check that all processes fit
"""
