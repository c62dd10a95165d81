"""Decoders with faults, for processes with this folder on their path: no known file crashes a real one."""

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
import time

BREAKS_AT = 21  # frame of the film


class Broken(importlib.abc.MetaPathFinder):
    """Finds the two decoders, and breaks them once they are loaded."""

    def find_spec(self, name, path, target=None):
        if name not in ("framekiln.media.images.photo", "framekiln.media.video.reader"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (run(module), break_(module))
        return spec


def break_(module):
    if module.__name__.endswith("photo"):
        whole = module.open_photo

        def open_photo(data, *more):
            if b"crash me" in data:
                ctypes.string_at(0)
            if b"hang me" in data:
                time.sleep(3600)
            return whole(data, *more)

        module.open_photo = open_photo
    else:
        film = module.open_video

        def open_video(media, *more):
            source = film(media, *more)
            if "fatal" in media.media_id:
                source = module.FrameSource(**vars(source) | {"frames": broken(source.frames)})
            return source

        module.open_video = open_video


def broken(frames):
    for number, frame in enumerate(frames):
        if number == BREAKS_AT:
            os.abort()
        yield frame


sys.meta_path.insert(0, Broken())
