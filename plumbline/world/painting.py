"""Soft-edged shapes painted onto many small images at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Canvas:
    """A stack of square RGB images that take the same shapes, each with its own place, size and colour.

    Every coordinate, half width and colour is a scalar or one value an image; lengths are in pixels.

    Parameters
    ----------
    n : int
        Number of images.
    size : int
        Height and width.
    fill : array-like
        Background colour, shape (n, 3), 0 to 255.
    """

    def __init__(self, n: int, size: int, *, fill: ArrayLike) -> None:
        self._n = n
        self._axis = np.arange(size, dtype=np.float32) + np.float32(0.5)
        self._image = np.empty((n, 3, size, size), np.float32)
        self._image[:] = np.asarray(fill, np.float32).reshape(n, 3, 1, 1)

    def ellipse(
        self,
        x: ArrayLike,
        y: ArrayLike,
        rx: ArrayLike,
        ry: ArrayLike,
        colour: ArrayLike,
        *,
        alpha: ArrayLike = 1.0,
    ) -> None:
        """Paint an ellipse with the given centre and half axes."""
        rx, ry = np.maximum(self._column(rx), 0.1), np.maximum(self._column(ry), 0.1)
        short = np.minimum(rx, ry)
        soft = 1 + np.float32(0.5) / short
        columns, across = self._window(x, rx * soft)
        rows, down = self._window(y, ry * soft)
        distance = np.sqrt(((across / rx) ** 2)[:, None, :] + ((down / ry) ** 2)[:, :, None])
        # In pixels along the shorter half axis: exact for a circle, close enough for a soft edge.
        cover = np.clip((1 - distance) * short[:, :, None] + 0.5, 0, 1)
        self._paint(rows, columns, cover, colour, alpha)

    def box(
        self,
        x: ArrayLike,
        y: ArrayLike,
        rx: ArrayLike,
        ry: ArrayLike,
        colour: ArrayLike,
        *,
        alpha: ArrayLike = 1.0,
    ) -> None:
        """Paint an upright rectangle with the given centre, half width and half height."""
        rx, ry = self._column(rx), self._column(ry)
        columns, across = self._window(x, rx + np.float32(0.5))
        rows, down = self._window(y, ry + np.float32(0.5))
        wide = np.clip(rx - np.abs(across) + 0.5, 0, 1)
        high = np.clip(ry - np.abs(down) + 0.5, 0, 1)
        self._paint(rows, columns, wide[:, None, :] * high[:, :, None], colour, alpha)

    def pixels(self, rng: np.random.Generator, *, noise: float, alike: bool = False) -> np.ndarray:
        """Return the images with normal pixel noise added.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the noise.
        noise : float
            Its standard deviation, in grey levels.
        alike : bool
            Whether all images get the same noise.

        Returns
        -------
        numpy.ndarray
            uint8, shape (n, size, size, 3), RGB.
        """
        shape = (1 if alike else self._n, *self._image.shape[1:])
        noisy = self._image + rng.standard_normal(shape, np.float32) * np.float32(noise)
        return np.ascontiguousarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8).transpose(0, 2, 3, 1))

    def _column(self, value: ArrayLike) -> NDArray[np.float32]:
        return np.broadcast_to(np.asarray(value, np.float32).reshape(-1, 1), (self._n, 1))

    def _window(self, centre: ArrayLike, reach: NDArray[np.floating]) -> tuple[slice, NDArray[np.float32]]:
        """Return the pixels of one axis that a shape may reach in any image, and how far each is from its centre."""
        middle = self._column(centre)
        if not self._n:
            return slice(0, 0), self._axis[:0] - middle
        first = int(np.floor((middle - reach).min())) - 1
        last = int(np.ceil((middle + reach).max())) + 1
        window = slice(*np.clip((first, last), 0, len(self._axis)).tolist())
        return window, self._axis[window] - middle

    def _paint(
        self, rows: slice, columns: slice, cover: np.ndarray, colour: ArrayLike, alpha: ArrayLike
    ) -> None:
        ink = np.asarray(colour, np.float32)
        ink = np.full((1, 3), ink) if ink.ndim == 0 else ink.reshape(-1, 3)
        mask = (cover * self._column(alpha)[:, :, None])[:, None]
        part = self._image[:, :, rows, columns]
        part += mask * (ink[:, :, None, None] - part)
