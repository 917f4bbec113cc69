"""Size of a picture, and its shape in the tower."""

from core.records import record


@record()
class Picture:
    """An image, or the frames of a video, in pixels."""

    width: int
    height: int
    frames: int = 1


@record()
class Shape:
    """What one picture is to the tower and to the language model.

    Attributes:
        sequences: sequences of patches that attend only to themselves: tiles or frames.
        rows, columns: patches of one sequence.
        tokens: tokens in the prompt, separators included.
    """

    sequences: int
    rows: int
    columns: int
    tokens: int

    @property
    def patches(self) -> int:
        """Patches of all sequences."""
        return self.sequences * self.rows * self.columns
