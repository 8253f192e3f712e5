"""gpu-leased.toml(5): of the table of keys, as docs/configuration.md."""

from __future__ import annotations

from leased.config import config, documents
from leased.manual import roff
from leased.manual.roff import Page


def page() -> Page:
    made = Page("gpu-leased.toml", 5, "the configuration of gpu-leased")
    made.section("synopsis")
    made.paragraph(f"`{config.DEFAULT_PATH}`")
    made.section("description")
    for text in documents.introduction():
        made.paragraph(text)
    for section, about in config.SECTIONS.items():
        made.section(f"[{section}]")
        made.paragraph(about)
        for key in config.of_section(section).values():
            made.item(roff.words(f"`{key.name}` = {key.kind.words}"), key.about)
            made.continued(f"Default: `{documents.toml(key.default)}`")
    made.section("see also")
    made.paragraph("`gpu-leased`(8), `gpu-leasectl`(1), `gpu-share`(7), `gpu-lease-placer`(8)")
    return made
