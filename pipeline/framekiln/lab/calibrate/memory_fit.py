"""Linear fits of measurements, by least squares with non-negative coefficients: more rows never take less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framekiln.planning.gpu.calibration_file import Line
from framekiln.planning.sample import Sample

Floats = NDArray[np.float64]


def memory_line(trials: Sequence[Sample]) -> Line | None:
    """Return peak memory as a function of batch and megapixels; None where the device does not measure memory.

    With images of one size only, all growth with the batch counts as per row.
    """
    measured = [trial for trial in trials if trial.peak_gb is not None]
    if not measured:
        return None
    peaks = [float(trial.peak_gb or 0.0) for trial in measured]
    base, row, pixel = non_negative_fit(design_matrix(measured), np.array(peaks))
    line = Line(base_gb=base, per_row_gb=row, per_megapixel_gb=pixel, error_gb=0.0)
    errors = [abs(line.at(trial.batch, trial.megapixels) - peak) for trial, peak in zip(measured, peaks, strict=True)]
    return line.model_copy(update={"error_gb": max(errors)})


def design_matrix(trials: Sequence[Sample]) -> Floats:
    """Return N x 3 values: 1, the batch, and its megapixels; the last column is zero with a single image size."""
    batches = np.array([trial.batch for trial in trials], float)
    sizes = np.array([trial.megapixels for trial in trials], float)
    several = len(set(sizes.tolist())) > 1
    return np.stack([np.ones_like(batches), batches, batches * sizes * several], axis=1)


def non_negative_fit(matrix: Floats, values: Floats, weights: Floats | None = None) -> tuple[float, float, float]:
    """Return three non-negative coefficients with the least sum of weighted squares.

    The algorithm is that of Lawson and Hanson (scipy.optimize.nnls), on columns scaled to length 1.
    """
    from scipy.optimize import nnls

    factors = np.ones(len(values)) if weights is None else weights
    scaled = matrix * factors[:, None]
    lengths = np.linalg.norm(scaled, axis=0)
    lengths[lengths == 0] = 1.0
    base, row, pixel = nnls(scaled / lengths, values * factors)[0] / lengths
    return float(base), float(row), float(pixel)
