"""The top of a report as a picture, for README.

    pip install weasyprint pypdfium2 pillow   # not among dvk's dependencies
    python -m tests.benchmarks.picture runs/NAME/report.html data/media/report.png

The renderer knows less CSS than browsers: sizes that it cannot compute are set here, and folded text stays folded.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

WIDTH, HEIGHT = 1200, 1225
COLOURS = 128
LIKE_A_BROWSER = f"""
@page {{ size: {WIDTH}px {HEIGHT}px; margin: 0 }}
main {{ width: 1024px; padding-top: 3rem }}
h1 {{ font-size: 3rem !important; line-height: 1.12 !important }}
details > :not(summary) {{ display: none !important }}
"""


def main() -> None:
    """Write the PNG."""
    import pypdfium2
    from weasyprint import CSS, HTML

    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    asked = parser.parse_args()
    pdf = io.BytesIO()
    page = HTML(string=asked.report.read_text(encoding="utf-8"))
    page.write_pdf(pdf, stylesheets=[CSS(string=LIKE_A_BROWSER)])
    first = pypdfium2.PdfDocument(pdf.getvalue())[0]
    drawn = first.render(scale=WIDTH / first.get_width()).to_pil()
    asked.picture.parent.mkdir(parents=True, exist_ok=True)
    drawn.convert("P", palette=1, colors=COLOURS).save(asked.picture, optimize=True)


if __name__ == "__main__":
    main()
