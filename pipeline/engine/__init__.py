"""Steps on Ray Data; this package alone knows Ray.

session   a connection to Ray, and its machines
board     where workers leave what the driver must know
hosting   the functions and actors that Ray calls
ending    the end of a dataset, also by Ctrl-C
sampler   what the machines do, four times a second
running   datasets of sealed packets through all of them
"""

from pipeline.engine.running import Engine
from pipeline.engine.session import session

__all__ = ["Engine", "session"]
