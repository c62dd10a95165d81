"""Steps in a few processes of this machine, without Ray.

engine  both passes: hands pieces of work to worker processes, and replaces those that die
child   the worker process itself
"""
