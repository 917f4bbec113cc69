"""Size of a picture or a clip, and its shape in the tower."""

from core.records import record


@record()
class Picture:
    """An image, or the frames of a video, in pixels."""

    width: int
    height: int
    frames: int = 1


@record()
class Clip:
    """A clip of sound."""

    seconds: float


@record()
class Shape:
    """What one picture or clip is to the tower and to the language model.

    Attributes:
        sequences: sequences of patches that attend only to themselves: tiles, frames, or chunks of sound.
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
