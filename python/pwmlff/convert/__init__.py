"""Model files of other programs, in the contracts of this project; `pwmlff convert`.

:func:`wrap` recognizes a file by its content, writes one that `pair_style pwmlff` runs, and
verifies it against the code of the original.
"""

from pwmlff.convert.wrapping import WrapReport, wrap

__all__ = ["WrapReport", "wrap"]
