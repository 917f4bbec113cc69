"""A clip of sound becomes frames of a spectrogram, which convolutions halve and tokens join."""

import math
from typing import Literal

from pydantic import Field

from core.loading import Strict
from simulator.models.towers.rules.base import Clip, Shape

FRAMES_A_SECOND = 100
"""Of the spectrogram: windows begin every 10 ms (WhisperFeatureExtractor)."""


class ClipFrames(Strict):
    """Tokens of a clip.

    Source: transformers 5.24, processing_qwen3_omni_moe.py and modeling_qwen2_5_omni.py
    (_get_feat_extract_output_lengths), processing_voxtral.py; feature extractors pad as WhisperEncoder needs.
    """

    kind: Literal["clips"] = "clips"
    patch: Literal[1] = Field(1, description="frames behind the convolutions that are one patch")
    halvings: int = Field(1, ge=0, le=8, description="convolutions that halve the frames")
    pooled: int = Field(1, ge=1, le=64, description="patches whose mean, or join, is one token")
    chunk: int = Field(0, ge=0, le=2**20, description="frames that convolutions see together; 0: all")
    padded: bool = Field(False, description="whether the last chunk is padded, and chunks attend apart")
    counts_padding: bool = Field(False, description="whether padding has tokens in the prompt")
    longest: int = Field(0, ge=0, le=2**30, description="frames that are kept; 0: all")

    def shape(self, clip: Clip) -> Shape:
        """A sequence of patches, or one a chunk where chunks are padded."""
        frames = max(math.ceil(clip.seconds * FRAMES_A_SECOND), 1)
        frames = min(frames, self.longest) if self.longest else frames
        if not self.padded:
            patches = self._patches(frames)
            return Shape(1, 1, patches, self._tokens(patches))
        chunks = math.ceil(frames / self.chunk)
        patches = self._halved(self.chunk)
        heard = chunks * patches if self.counts_padding else self._halved(frames)
        return Shape(chunks, 1, patches, self._tokens(heard))

    def _halved(self, frames: int) -> int:
        for _ in range(self.halvings):
            frames = (frames - 1) // 2 + 1
        return frames

    def _patches(self, frames: int) -> int:
        if not self.chunk:
            return self._halved(frames)
        rest = frames % self.chunk
        return frames // self.chunk * self._halved(self.chunk) + (self._halved(rest) if rest else 0)

    def _tokens(self, patches: int) -> int:
        return max(patches // self.pooled, 1)
