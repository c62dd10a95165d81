"""Steps to processes on machines.

placement        workers, cores and GPU shares of each step
waves            readings of the media, where a GPU does not hold all models, and steps that share a process
resources        the machines, and the check that all processes fit
"""
