"""What a look over the data folder found, as JSON data."""

from __future__ import annotations

from typing import Any

from index import Finding


def finding_json(finding: Finding) -> dict[str, Any]:
    """Give one finding as JSON data."""
    return {"kind": finding.kind, "subject": finding.subject, "message": finding.message}
