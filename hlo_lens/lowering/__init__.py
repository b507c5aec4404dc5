"""What the matmuls, ragged dots, attention and expert blocks of a program became."""

from __future__ import annotations

from hlo_lens.lowering.report import Report, lowering_report

__all__ = ["Report", "lowering_report"]
