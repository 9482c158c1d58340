"""Draw how data flow: `python docs/architecture_picture.py > docs/architecture.svg`."""

from __future__ import annotations

import sys

#: Left, upper edge, width and lines of each box; the first line is its name.
BOXES = {
    "lammps": (20, 40, 200, "LAMMPS", "x, type, its list;", "f, energy, virial"),
    "style": (
        330,
        40,
        250,
        "pair_pwmlff.cpp",
        "commands, units, elements;",
        "sums, deviation file",
    ),
    "neighbors": (330, 170, 250, "neighbors", "centers and candidates;", "padded slots, edges"),
    "model": (
        330,
        300,
        250,
        "model",
        "the engine of a file, verified",
        "against the file's own code",
    ),
    "file": (
        20,
        300,
        200,
        "model file (.pt)",
        "TorchScript, with a card;",
        "checked by kernels/archive",
    ),
    "cpu": (220, 430, 150, "kernels/families", "fused, on the CPU:", "AVX-512, AVX2, any"),
    "gpu": (385, 430, 150, "kernels/families", "fused, on a GPU,", "core/gpu"),
    "script": (550, 430, 150, "TorchScript", "the file's code,", "models/edge"),
    "train": (690, 40, 230, "pwmlff train", "frames, statistics, loop,", "optimizers, ranks"),
    "calculator": (
        690,
        170,
        200,
        "Calculator, pwmlff test",
        "ase's atoms, candidates;",
        "verified in the same way",
    ),
    "gradients": (
        750,
        430,
        170,
        "kernels/training",
        "gradients of the loss,",
        "kernels/optimizer",
    ),
    "reference": (
        690,
        300,
        200,
        "pwmlff.evaluation.reference",
        "plain float64,",
        "for pwmlff compare",
    ),
}
HEIGHT = 76  # of a box, in pixels
COLORS = {
    "pair_pwmlff": "#e3f2fd",
    "models": "#ede7f6",
    "kernels": "#fff3e0",
    "python": "#e8f5e9",
    "": "#f5f5f5",
}
PARTS = {
    "pair_pwmlff": ("style",),
    "models": ("neighbors", "model", "script"),
    "kernels": ("cpu", "gpu", "gradients"),
    "python": ("train", "calculator", "reference"),
}

#: Where the code of each box is; LAMMPS and files have none. tests/docs looks there whether what an
#: arrow leads from and to knows of each other.
SOURCES = {
    "style": ["pair_pwmlff"],
    "neighbors": ["models/neighbors.h", "models/neighbors.cpp"],
    "model": ["models"],
    "cpu": ["kernels/core/family.h", "kernels/core/cpu", "kernels/families"],
    "gpu": ["kernels/core/family.h", "kernels/core/gpu", "kernels/families"],
    "script": ["models/edge"],
    "train": ["python/pwmlff/train", "python/pwmlff/data"],
    "calculator": [
        "python/pwmlff/evaluation/calculator.py",
        "python/pwmlff/evaluation/engine.py",
        "python/pwmlff/native.py",
    ],
    "gradients": ["kernels/training", "kernels/optimizer"],
    "reference": [
        "python/pwmlff/evaluation/reference.py",
        "python/pwmlff/evaluation/dp_reference.py",
    ],
}

#: From which box to which, as points on their edges, with a text beside the line.
ARROWS = [
    ("lammps", "style", (220, 65), (330, 65), "positions"),
    ("style", "lammps", (330, 100), (220, 100), "forces"),
    ("style", "neighbors", (400, 116), (400, 170), "atoms, list"),
    ("neighbors", "style", (510, 170), (510, 116), "forces"),
    ("neighbors", "model", (400, 246), (400, 300), "candidates"),
    ("model", "neighbors", (510, 300), (510, 246), "by atom"),
    ("file", "model", (220, 338), (330, 338), "contents"),
    ("model", "cpu", (380, 376), (330, 430), ""),
    ("model", "gpu", (455, 376), (455, 430), ""),
    ("model", "script", (530, 376), (590, 430), ""),
    ("calculator", "model", (690, 235), (580, 320), "structures"),
    ("train", "gradients", (905, 116), (905, 430), ""),
]


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}"{style}>{text}</text>'


def picture() -> str:
    """The picture as SVG."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 530" '
        'font-family="sans-serif" font-size="14">',
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#37474f"/></marker></defs>',
        '<rect width="940" height="530" fill="#ffffff"/>',
    ]
    for _, _, (x1, y1), (x2, y2), text in ARROWS:
        lines += [
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#37474f" '
            'stroke-width="1.5" marker-end="url(#head)"/>'
        ]
        if text and x1 == x2:
            lines += [_text(x1 + 6, (y1 + y2) // 2 + 5, text)]
        elif text:
            lines += [_text((x1 + x2) // 2, y1 - 6, text, ' text-anchor="middle"')]
    for name, (x, y, width, title, *words) in BOXES.items():
        part = next((part for part, names in PARTS.items() if name in names), "")
        lines += [
            f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="6" '
            f'fill="{COLORS[part]}" stroke="#37474f"/>',
            _text(x + 10, y + 22, title, ' font-weight="bold"'),
            *(_text(x + 10, y + 44 + 19 * k, line) for k, line in enumerate(words)),
        ]
    x = 20
    for part, color in list(COLORS.items())[:3]:
        lines += [f'<rect x="{x}" y="8" width="16" height="16" fill="{color}" stroke="#37474f"/>']
        lines += [_text(x + 22, 21, part)]
        x += 120
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(picture())
