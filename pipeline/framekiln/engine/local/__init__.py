"""Steps in a few processes of this machine, without Ray.

engine  both passes: hands pieces of work to worker processes
pool    the worker processes; replaces those that die
child   the worker process itself
"""
