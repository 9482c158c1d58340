"""What came of a learning loop, for people and programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pwmlff.launch.script import quoted
from pwmlff.learn.account import PICTURE, percent
from pwmlff.learn.state import LEAST_STEPS, State

MUCH = 0.2  # of structures beyond the window, that is a reason
SHOWN = 5


@dataclass(frozen=True)
class LearnReport:
    """All rounds, and where the models are."""

    folder: str
    state: State
    models: list[str]
    contradictions: tuple[str, ...] | list[str] = ()
    elements: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the models agreed on what they explored."""
        return self.state.end == "converged"

    @property
    def ok(self) -> bool:
        """Whether there are models; a budget that is spent is no failure."""
        return True

    def data(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "folder": self.folder,
            "models": self.models,
            "converged": self.converged,
            "reasons": self.reasons(),
            **asdict(self.state),
        }

    def reasons(self) -> list[str]:
        """Why it has not converged, as far as can be told."""
        if self.converged:
            return []
        result = [f"it ended by: {self.state.end}"]
        steps = self.state.rounds[-1]["train"].get("steps", LEAST_STEPS)
        if steps < LEAST_STEPS:
            result.append(
                f"the last training made {steps} steps, which is next to nothing: give it more time"
            )
        complete = [part for part in self.state.rounds if "explore" in part]
        failures = [text for part in complete for text in part.get("label", {}).get("failures", [])]
        failures += self.state.first.get("failures", [])
        if failures:
            result.append(f"{len(failures)} structures got no labels, the first: {failures[0]}")
        if complete:
            last = complete[-1]["explore"]
            if last["beyond"] > MUCH * last["structures"] or not last["chosen"]:
                result.append(
                    f"{percent(last, 'beyond')} of the structures were beyond the window, "
                    "which are not labelled: explore by shorter runs, at lower temperatures or "
                    "smaller strains first (first_round), or widen [choose] window"
                )
            if last["unsound"]:
                result.append(
                    f"{last['unsound']} of {last['candidates']} candidates have atoms closer than "
                    "[choose] closest: the models fall into holes there; give data of atoms "
                    "pressed together, or lower the temperature"
                )
            died = Counter(run["died"] for run in last["runs"] if run["died"])
            result += [
                f"{count} of {len(last['runs'])} explorations died: {text}" + _hint(text)
                for text, count in died.most_common(SHOWN)
            ]
        result += [f"labels contradict each other: {text}" for text in self.contradictions[:SHOWN]]
        return result

    def show(self) -> RenderableType:
        """A row for each round, then the reasons and the lines for LAMMPS."""
        table = Table(
            *("round", "frames", "RMSE of forces,\nmeV/Å", "window, eV/Å", "structures"),
            *("below", "beyond", "died", "labels", "RMSE there,\nmeV/Å", "minutes"),
        )
        for k, part in enumerate(self.state.rounds):
            train, explored, labels = (part.get(name, {}) for name in ("train", "explore", "label"))
            forces = [v["force"] for v in train["valid"] if "force" in v]
            row = [str(k), str(train["frames"]), " ".join(f"{value:.4g}" for value in forces)]
            row.append("{:.3g} - {:.3g}".format(*train["window"]))
            if explored:
                died = sum(bool(run["died"]) for run in explored["runs"])
                row += [str(explored["structures"]), percent(explored, "below")]
                row += [percent(explored, "beyond"), str(died), str(labels.get("frames", ""))]
                row.append(f"{1000 * labels['rmse']:.4g}" if "rmse" in labels else "")
            else:
                row += [""] * 6
            seconds = train["seconds"] + explored.get("seconds", 0.0)
            table.add_row(*row, f"{seconds / 60:.3g}")
        parts: list[RenderableType] = [table]
        if self.converged:
            parts.append(Text("the models agree on what they explore", "green"))
        parts += [Text(text, "yellow") for text in self.reasons()]
        words = " ".join(map(quoted, self.models))
        lines = ["", "In the input of LAMMPS:", "", "    units metal"]
        lines += [f"    pair_style pwmlff {len(self.models)} {words}"]
        lines += [f"    pair_coeff * * {' '.join(self.elements)}", ""]
        kept = f"{Path(self.folder)}: state.json, and of each round its labels"
        if drawn := len(list(Path(self.folder).glob(f"*/{PICTURE}"))):
            kept += f"; {PICTURE} of {drawn}"
        lines.append(kept)
        parts += [Text(line, no_wrap=True, overflow="ignore") for line in lines]
        return Group(*parts)


def _hint(text: str) -> str:
    """What helps against the end of a run, where that is known."""
    if "max_neighbor" in text or "neighbors" in text:
        return "; raise [model] max_neighbor in [train] set"
    if "non-finite" in text or "lost" in text.lower():
        return "; atoms came too close: lower timestep or temperature, or give repulsive data"
    return ""
