"""Module that Python loads first: it turns cuDNN off in torch, since a GPU that computes nothing cannot run it."""

import importlib.abc
import importlib.machinery
import sys


class _WithoutCudnn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loader that loads torch as usual, and then turns cuDNN off."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            self._usual, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._usual.create_module(spec)

    def exec_module(self, module):
        self._usual.exec_module(module)
        module.backends.cudnn.enabled = False
        module.backends.cuda.enable_cudnn_sdp(False)


sys.meta_path.insert(0, _WithoutCudnn())
