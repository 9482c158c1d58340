"""Model files of other programs, in the contracts of this project; `pwmlff convert`.

:func:`convert` recognizes a file by its content, writes one that `pair_style pwmlff` runs, and
verifies it against the code of the original.
"""

from pwmlff.convert.conversion import ConversionReport, convert

__all__ = ["ConversionReport", "convert"]
