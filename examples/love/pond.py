"""The water of examples/love: waves on a grid, painted into the memory that the game draws."""

import numpy as np


class Pond:
    """`picture` is the game's own, rows x columns x RGBA; `height` is how high the water stands in each cell."""

    def __init__(self, picture):
        self.picture = picture
        rows, columns = picture.shape[:2]
        self.height = np.zeros((rows, columns), "float32")
        self.speed = np.zeros_like(self.height)
        self.y, self.x = np.ogrid[:rows, :columns]
        picture[..., 3] = 255

    def push(self, x, y, strength):
        """A dent of so many cells' depth."""
        self.height -= strength * np.exp(((self.x - x) ** 2 + (self.y - y) ** 2) / np.float32(-12))

    def step(self):
        """The water in a cell is drawn to the mean of its four neighbours."""
        beside = np.pad(self.height, 1, mode="edge")
        around = beside[:-2, 1:-1] + beside[2:, 1:-1] + beside[1:-1, :-2] + beside[1:-1, 2:]
        self.speed += 0.24 * (around - 4 * self.height)
        self.speed *= 0.994
        self.height += self.speed

    def paint(self):
        """Slopes that face the light are bright."""
        down, across = np.gradient(self.height)
        light = np.clip(0.35 + 1.6 * (down + across), 0, 1)
        self.picture[..., 0] = 10 + 170 * light**2
        self.picture[..., 1] = 50 + 170 * light
        self.picture[..., 2] = 90 + 150 * light
