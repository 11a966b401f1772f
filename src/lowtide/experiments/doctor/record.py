"""What the doctor found, as a report that can be pasted into an issue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one check."""

    name: str
    passed: bool
    said: str
    """What was seen, or how it failed: the error and where it was raised."""
    seconds: float


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
        passed = sum(finding.passed for finding in self.findings)
        lines = [f"# lowtide doctor: {passed} of {len(self.findings)} checks passed on {self.device}", ""]
        lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in self.facts), ""]
        lines += ["| check | | seconds | |", "|---|---|---|---|"]
        for finding in self.findings:
            word, said = "ok" if finding.passed else "**failed**", finding.said.splitlines()[0]
            lines.append(f"| {finding.name} | {word} | {finding.seconds:.1f} | {said.replace('|', '/')} |")
        for finding in self.findings:
            if not finding.passed:
                lines += ["", f"## {finding.name}", "", "```", finding.said, "```"]
        return "\n".join(lines) + "\n"
