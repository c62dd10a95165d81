"""An object that stages share, in a module of its own: it keeps the rows of a call on itself."""

from __future__ import annotations

import numpy as np

from framekiln.contract.columns import views


class RowsHolder:
    """Computes the redness of the rows that it holds."""

    def red(self, batch):
        self.rows = batch
        return np.array([image[..., 0].mean() for image in views(self.rows["frame_224"])], np.float32)


HOLDER = RowsHolder()
