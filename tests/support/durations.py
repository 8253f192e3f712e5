"""How long the files of tests take, for the order in which they begin (parallel.py).

`python -m tests.support.durations JUNIT.xml`, after `make test ARGS=--junit-xml=JUNIT.xml`, writes
data/seconds.json anew.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "data" / "seconds.json"
LEAST_S = 5  # what takes less need not be ordered


def file_of(class_name: str) -> str:
    """The file of a test case, by the name of its module and of its class in there, if any."""
    path = ROOT / class_name.replace(".", "/")
    while not path.with_suffix(".py").exists():
        if path == ROOT:
            raise ValueError(f"{class_name} is in no file of the tests; run them anew")
        path = path.parent
    return str(path.with_suffix(".py").relative_to(ROOT))


def by_file(report: str) -> dict[str, int]:
    """Whole seconds by file, the longest first, of those that take at least LEAST_S."""
    took: defaultdict[str, float] = defaultdict(float)
    for case in ET.fromstring(report).iter("testcase"):
        took[file_of(case.attrib["classname"])] += float(case.attrib["time"])
    longest = sorted(took.items(), key=lambda item: -item[1])
    return {file: round(seconds) for file, seconds in longest if seconds >= LEAST_S}


def main() -> None:
    found = by_file(Path(sys.argv[1]).read_text())
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
