"""What a checkpoint policy keeps, computes again and takes, of one program or against another."""

from __future__ import annotations

from hlo_lens.remat.joint import Answer, Joint, NoAnswerError, StagePair, compare

__all__ = ["Answer", "Joint", "NoAnswerError", "StagePair", "compare"]
