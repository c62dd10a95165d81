"""Lines through what was measured, by least squares with no negative part: more rows never take less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.calibration.figures import Line, Trial

Floats = NDArray[np.float64]


def memory_line(trials: Sequence[Trial]) -> Line | None:
    """Peak memory over batches and sizes; None where the device did not tell it.

    With pictures of one size only, all that grows with the batch is put down to the row.
    """
    told = [trial for trial in trials if trial.peak_gb is not None]
    if not told:
        return None
    peaks = [float(trial.peak_gb or 0.0) for trial in told]
    base, row, pixel = solved(design(told), np.array(peaks))
    line = Line(base_gb=base, per_row_gb=row, per_megapixel_gb=pixel, error_gb=0.0)
    errors = [abs(line.at(trial.batch, trial.megapixels) - peak) for trial, peak in zip(told, peaks, strict=True)]
    return line.model_copy(update={"error_gb": max(errors)})


def design(trials: Sequence[Trial]) -> Floats:
    """N x 3: one, the batch, and its megapixels; of one size the last column is zero."""
    batches = np.array([trial.batch for trial in trials], float)
    sizes = np.array([trial.megapixels for trial in trials], float)
    several = len(set(sizes.tolist())) > 1
    return np.stack([np.ones_like(batches), batches, batches * sizes * several], axis=1)


def solved(matrix: Floats, wanted: Floats, weights: Floats | None = None) -> tuple[float, float, float]:
    """The three non-negative coefficients with the least sum of squares, each equation times its weight.

    Lawson and Hanson's active sets (scipy.optimize.nnls), on columns of one length.
    """
    from scipy.optimize import nnls

    weighed = np.ones(len(wanted)) if weights is None else weights
    scaled = matrix * weighed[:, None]
    lengths = np.linalg.norm(scaled, axis=0)
    lengths[lengths == 0] = 1.0
    found = nnls(scaled / lengths, wanted * weighed)[0] / lengths
    return float(found[0]), float(found[1]), float(found[2])
