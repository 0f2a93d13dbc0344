"""A page for people: sections of headed blocks, laid out as one HTML file that holds its figures, and as plain text for terminals."""

import base64
import dataclasses
import io
from pathlib import Path

import jinja2
from PIL import Image
from tabulate import tabulate

from recap_steam.report.tables import Table

TEMPLATE = Path(__file__).with_name("page.html")


@dataclasses.dataclass(frozen=True)
class Notice:
    """Something that a reader should know first, and what to do about it."""

    text: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class Block:
    """A heading, sentences, a table, a drawing (SVG), figures by caption and a note, each optional, in this order.

    ``folded``: shown on request only; its figures, of which there may be many, are kept small in bytes.
    """

    heading: str = ""
    sentences: list[str] = dataclasses.field(default_factory=list)
    table: Table | None = None
    drawing: str = ""
    figures: dict[str, Path] = dataclasses.field(default_factory=dict)
    note: str = ""
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    blocks: list[Block]


@dataclasses.dataclass(frozen=True)
class Document:
    """``findings`` and ``warnings`` stand at its head; sections without blocks are left out."""

    title: str
    subtitle: str
    findings: list[str]
    warnings: list[Notice]
    sections: list[Section]

    def html(self) -> str:
        """One HTML file that needs no other: figures are inside, and there is neither script nor link to elsewhere."""
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
        environment.filters["embedded"] = embedded
        sections = [section for section in self.sections if section.blocks]
        return environment.from_string(TEMPLATE.read_text()).render(page=self, sections=sections)

    def text(self, unprinted: tuple[str, ...] = ()) -> str:
        """Findings, warnings, sentences and tables, but those of the ``unprinted`` sections (by anchor)."""
        parts = [self.title, *_list(self.findings), *_list([f"warning: {item.text} {item.remedy}" for item in self.warnings])]
        for section in self.sections:
            for block in section.blocks:
                parts += _list(block.sentences)
                if block.table and section.anchor not in unprinted:
                    title = f"{section.title}: {block.heading}" if block.heading else section.title
                    parts.append(f"{title}\n{tabulate(block.table.rows, block.table.head, disable_numparse=True)}")
        return "\n\n".join(parts) + "\n"


def _list(sentences: list[str]) -> list[str]:
    return ["\n".join(f"* {sentence}" for sentence in sentences)] * bool(sentences)


def embedded(path: Path, exact: bool) -> str:
    """A PNG file as data URI: as it is, or as WebP of a third of its size."""
    if exact:
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").save(buffer, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
