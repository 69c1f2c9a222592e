"""What is left out of a picture, so that it shows: torn edges, and a map of the whole."""

from __future__ import annotations

from tma_dlpack.draw.scene import Box, Item, Line, Text

TOOTH = 6  # px along a torn edge
DEPTH = 3  # px across

Points = tuple[tuple[float, float], ...]
MINIMAP_HEIGHT, MINIMAP_WIDTH, LEAST = 54, 96, 3


def torn(x: float, y: float, right: float, bottom: float) -> Points:
    """Give a zigzag from one point to another along an axis.

    >>> torn(0, 0, 12, 0)
    ((0, 0), (6.0, 3), (12.0, 0))
    """
    length = max(right - x, bottom - y)
    count = max(2, round(length / TOOTH))
    across = right - x < bottom - y
    points = []
    for n in range(count + 1):
        along, out = n * length / count, DEPTH * (n % 2)
        points.append((x + out, y + along) if across else (x + along, y + out))
    points[0] = (x, y)
    return tuple((round(a, 2), round(b, 2)) for a, b in points)


def edges(
    left: float, top: float, right: float, bottom: float, cut: tuple[bool, bool, bool, bool]
) -> tuple[Line, list[Item]]:
    """Draw a rectangle whose sides may be cut: (left, top, right, bottom).

    Returns
    -------
    ground : Line
        Its area.
    sides : list of Item
        Straight where the rectangle ends, torn where it goes on.
    """
    straight: list[Points] = [
        ((left, bottom), (left, top)),
        ((left, top), (right, top)),
        ((right, top), (right, bottom)),
        ((right, bottom), (left, bottom)),
    ]
    zigzag = [
        torn(left, top, left, bottom)[::-1],
        torn(left, top, right, top),
        torn(right, top, right, bottom),
        torn(left, bottom, right, bottom)[::-1],
    ]
    sides = [z if is_cut else s for s, z, is_cut in zip(straight, zigzag, cut, strict=True)]
    around = tuple(point for side in sides for point in side)
    return Line(around, "ground"), [Line(side, "edge") for side in sides]


def minimap(
    x: float,
    y: float,
    whole: tuple[tuple[int, int], tuple[int, int]],
    drawn: tuple[tuple[int, int], tuple[int, int]],
    said: str,
) -> list[Item]:
    """Draw the whole as a small rectangle, and on it a frame around what is drawn.

    `whole` and `drawn` are (columns, rows), each [first, last). A frame is at least 3 pixels wide.
    """
    spans = [last - first for first, last in whole]
    scale = min(MINIMAP_WIDTH / spans[0], (MINIMAP_HEIGHT - 10) / spans[1])
    sizes = [max(8.0, scale * span) for span in spans]
    frame = []
    for (first, last), (begin, end), size in zip(whole, drawn, sizes, strict=True):
        length = max(LEAST, (end - begin) / (last - first) * size)
        frame.append((min((begin - first) / (last - first) * size, size - length), length))
    (left, width), (top, height) = frame
    return [
        Box(x, y, round(sizes[0], 2), round(sizes[1], 2), "tensor"),
        Box(round(x + left, 2), round(y + top, 2), round(width, 2), round(height, 2), "frame"),
        Text(x + MINIMAP_WIDTH + 12, y + 14, said, "muted"),
    ]
