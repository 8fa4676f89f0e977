"""Many-dimensional rows as points of a plane: principal coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Projection:
    """Coordinates of rows, and the share of the variance that each axis carries."""

    points: NDArray[np.float64]
    explained: NDArray[np.float64]


def principal_coordinates(rows: NDArray[np.float64]) -> Projection:
    """Rotate rows onto their principal axes; distances between rows stay what they were.

    Through the matrix of inner products, whose size is that of the rows and not of the columns:
    a thousand rows of a hundred thousand columns are as cheap as a thousand of a thousand. Each
    axis is turned so that its largest coordinate is positive: the answer never varies.
    """
    centred = rows - rows.mean(axis=0, keepdims=True)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    order = np.argsort(values)[::-1]
    values, vectors = values[order].clip(0), vectors[:, order]
    points = vectors * np.sqrt(values)
    largest = np.argmax(np.abs(points), axis=0)
    sign = np.sign(points[largest, np.arange(points.shape[1])])
    points = points * np.where(sign == 0, 1.0, sign)
    total = float(values.sum())
    return Projection(points, values / total if total > 0 else np.zeros(len(values)))
