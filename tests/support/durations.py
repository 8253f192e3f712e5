"""How long the files of tests take, for the order in which they begin (parallel.py).

`python -m tests.support.durations JUNIT.xml`, after `make test ARGS=--junit-xml=JUNIT.xml`, writes
data/seconds.json anew. It prints the seconds of each file, and those of processor time where the
run was one with `-p tests.support.processor` too.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

from tests.support import processor

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


def by_file(report: str) -> dict[str, tuple[float, float]]:
    """Seconds and seconds of processor time (0: not known) by file, the longest first."""
    took: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for case in ET.fromstring(report).iter("testcase"):
        sums = took[file_of(case.attrib["classname"])]
        sums[0] += float(case.attrib["time"])
        sums[1] += sum(
            float(one.attrib["value"])
            for one in case.iter("property")
            if one.attrib["name"] == processor.PROPERTY
        )
    longest = sorted(took.items(), key=lambda item: -item[1][0])
    return {file: (sums[0], sums[1]) for file, sums in longest}


def main() -> None:
    found = by_file(Path(sys.argv[1]).read_text())
    whole = {file: round(took) for file, (took, _) in found.items() if took >= LEAST_S}
    RECORDED.write_text(json.dumps(whole, indent=1) + "\n")
    for file, (took, used) in found.items():
        print(f"{took:8.1f} {used:8.1f} {file}")


if __name__ == "__main__":
    main()
