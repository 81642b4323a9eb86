"""Writes dejavu_sans.txt: outlines of DejaVu Sans, for PNG plots.

    pip install fonttools
    python make.py /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf > dejavu_sans.txt

The first line is the number of units of an em. Then one line for each character: its code in
hexadecimal, how far the next one is, and its outline as an SVG path of `M` (absolute), `l` and `q`
(relative), y upwards, each contour closed.
"""

import sys

from fontTools.pens.basePen import BasePen
from fontTools.ttLib import TTFont

CHARACTERS = (
    [chr(c) for c in range(0x20, 0x7F)]
    + [chr(c) for c in range(0xA0, 0x100) if c != 0xAD]
    + list("ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩαβγδεζηθικλμνξοπρςστυφχψωϵ")
    + list("–—‘’“”•…′″‰⁰⁴⁵⁶⁷⁸⁹⁺⁻₀₁₂₃₄₅₆₇₈₉ℓ←↑→↓↔∂∆∇∈∏∑−∘√∝∞∫≈≠≡≤≥⋅⟨⟩‖␣")
)


class Path(BasePen):
    """Collects relative segments."""

    def __init__(self, glyphs):
        super().__init__(glyphs)
        self.text, self.last, self.kind = [], (0, 0), ""

    def add(self, kind, *points):
        numbers, (x, y) = [], self.last
        for px, py in points:
            px, py = round(px), round(py)
            base = (0, 0) if kind == "M" else (x, y)
            numbers += [px - base[0], py - base[1]]
        self.last = (px, py)
        words = " ".join(str(n) for n in numbers).replace(" -", "-")
        same = kind == self.kind and kind != "M"
        self.text.append((" " if words[0] != "-" else "") + words if same else kind + words)
        self.kind = kind

    def _moveTo(self, point):
        self.add("M", point)

    def _lineTo(self, point):
        self.add("l", point)

    def _qCurveToOne(self, control, point):
        self.add("q", control, point)

    def _closePath(self):
        pass


def main():
    font = TTFont(sys.argv[1])
    names, glyphs = font.getBestCmap(), font.getGlyphSet()
    print(font["head"].unitsPerEm)
    for character in sorted(set(CHARACTERS)):
        name = names.get(ord(character))
        if name is None:
            print(f"no {character!r}", file=sys.stderr)
            continue
        path = Path(glyphs)
        glyphs[name].draw(path)
        print(f"{ord(character):x} {glyphs[name].width} {''.join(path.text)}".rstrip())


if __name__ == "__main__":
    main()
