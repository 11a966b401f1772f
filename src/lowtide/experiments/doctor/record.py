"""What the doctor found, as a report that can be pasted into an issue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one check."""

    name: str
    passed: bool
    said: str
    """What was seen, or how it failed: the error in a line, then where it was raised."""
    seconds: float
    advice: str = ""
    """What it means where it failed, and what to do."""


@dataclass(frozen=True)
class Diagnosis:
    """Everything that one run found."""

    device: str
    facts: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]

    @property
    def well(self) -> bool:
        """Did all checks pass?"""
        return all(finding.passed for finding in self.findings)

    def markdown(self) -> str:
        """The report."""
        failed = [finding for finding in self.findings if not finding.passed]
        passed = len(self.findings) - len(failed)
        lines = [f"# lowtide doctor: {passed} of {len(self.findings)} checks passed on {self.device}", ""]
        if failed:
            lines += [f"Failed: {', '.join(finding.name for finding in failed)}. Where and how stands at the end.", ""]
            lines += ["What to do, the first of these first:", ""]
            lines += [*(f"- **{finding.name}**: {finding.advice}" for finding in failed), ""]
        lines += [_row("", ""), "|---|---|", *(_row(*fact) for fact in self.facts)]
        lines += ["", _row("check", "", "seconds", ""), "|---|---|---|---|"]
        for finding in self.findings:
            word = "ok" if finding.passed else "**failed**"
            lines.append(_row(finding.name, word, f"{finding.seconds:.1f}", finding.said))
        for finding in failed:
            lines += ["", f"## {finding.name}", "", "```", finding.said, "```"]
        return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    """Of a table: the first line of each cell."""
    firsts = (cell.partition("\n")[0].replace("|", "/") for cell in cells)
    return f"| {' | '.join(firsts)} |"
