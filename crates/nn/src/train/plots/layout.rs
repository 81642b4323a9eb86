//! A chart as shapes on a page: where everything goes.

use super::chart::{Chart, Series};
use super::font;
use super::ticks::ChartAxis;

/// The size of the page, in units of which plain text is eleven high.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const HEIGHT: f64 = 440.0;

/// Where the lines are drawn.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 388.0;

/// Red, green, blue.
pub(super) type Colour = [u8; 3];

const INK: Colour = [0x33, 0x38, 0x40];
const QUIET: Colour = [0x6b, 0x72, 0x7d];
const GRID: Colour = [0xe6, 0xe8, 0xec];
const FRAME: Colour = [0xb8, 0xbd, 0xc6];

/// Colours that are distinguishable with colour blindness.
const COLOURS: [Colour; 6] = [
    [0x1f, 0x6f, 0xb4],
    [0xe0, 0x6a, 0x1c],
    [0x12, 0x94, 0x72],
    [0xb5, 0x5a, 0xa0],
    [0xd6, 0xa0, 0x00],
    [0x4f, 0xa9, 0xd8],
];

/// Which point of a text is where it is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How large a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextSize {
    Plain,
    Title,
}

impl TextSize {
    /// The size of its letters. Those of the PNG's font are larger than those that an SVG is mostly
    /// shown in, so their size is smaller.
    pub fn units(self) -> f64 {
        match self {
            TextSize::Plain => 10.5,
            TextSize::Title => 15.0,
        }
    }
}

/// What there is on a page, in the order in which it is drawn.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// A line through points. Pale ones let what is behind them through.
    Line { points: Vec<(f64, f64)>, colour: Colour, width: f64, pale: bool },
    /// A text; the point is on its base line. Rotated ones go upwards.
    Text {
        at: (f64, f64),
        text: String,
        size: TextSize,
        anchor: Anchor,
        colour: Colour,
        upwards: bool,
    },
}

/// The shapes of a chart.
pub(super) fn shapes(chart: &Chart) -> Vec<Mark> {
    let all = || chart.series.iter().flat_map(|series| &series.points);
    let drawn = |y: f64| y.is_finite() && (!chart.log_y || y > 0.0);
    let x_axis = ChartAxis::around(all().filter(|p| drawn(p.1)).map(|p| p.0), false, 0.0);
    let y_axis = ChartAxis::around(all().map(|p| p.1), chart.log_y, 0.05);
    let x_at = |x: f64| LEFT + x_axis.place(x) * (RIGHT - LEFT);
    let y_at = |y: f64| BOTTOM - y_axis.place(y) * (BOTTOM - TOP);

    let mut out = Vec::new();
    let straight =
        |from, to, colour| Mark::Line { points: vec![from, to], colour, width: 1.0, pale: false };
    for (y, label) in y_axis.ticks(6) {
        out.push(straight((LEFT, y_at(y)), (RIGHT, y_at(y)), GRID));
        out.push(text((LEFT - 8.0, y_at(y) + 3.5), number(&label), Anchor::End, QUIET));
    }
    for (x, label) in x_axis.ticks(8) {
        out.push(straight((x_at(x), BOTTOM), (x_at(x), BOTTOM + 4.0), FRAME));
        out.push(text((x_at(x), BOTTOM + 17.0), number(&label), Anchor::Middle, QUIET));
    }
    out.push(straight((LEFT, TOP), (LEFT, BOTTOM), FRAME));
    out.push(straight((LEFT, BOTTOM), (RIGHT, BOTTOM), FRAME));

    let (pale, clear): (Vec<&Series>, Vec<&Series>) = chart.series.iter().partition(|s| s.pale);
    for series in pale.into_iter().chain(clear) {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let width = if series.pale { 1.2 } else { 2.0 };
        for piece in series.points.split(|&(x, y)| !x.is_finite() || !drawn(y)) {
            let points: Vec<(f64, f64)> = piece.iter().map(|&(x, y)| (x_at(x), y_at(y))).collect();
            let points = thinned(points);
            match points[..] {
                [] => (),
                // A point alone is a dot: a short and thick line.
                [(x, y)] => {
                    let points = vec![(x - 0.01, y), (x + 0.01, y)];
                    out.push(Mark::Line { points, colour, width: 5.0, pale: series.pale });
                }
                _ => out.push(Mark::Line { points, colour, width, pale: series.pale }),
            }
        }
    }
    if !all().any(|p| p.0.is_finite() && drawn(p.1)) {
        let middle = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        out.push(text(middle, "nothing to show".to_string(), Anchor::Middle, QUIET));
    }
    titles(chart, &mut out);
    legend(chart, &mut out);
    out
}

/// A number with the sign of a formula, which a hyphen is not.
fn number(label: &str) -> String {
    label.replace('-', "−")
}

fn text(at: (f64, f64), text: String, anchor: Anchor, colour: Colour) -> Mark {
    Mark::Text { at, text, size: TextSize::Plain, anchor, colour, upwards: false }
}

fn titles(chart: &Chart, out: &mut Vec<Mark>) {
    let title = |at, text: &str, anchor, size, upwards| Mark::Text {
        at,
        text: text.to_string(),
        size,
        anchor,
        colour: INK,
        upwards,
    };
    let (across, down) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
    out.push(title((LEFT, 28.0), &chart.title, Anchor::Start, TextSize::Title, false));
    out.push(title((across, 426.0), &chart.x_label, Anchor::Middle, TextSize::Plain, false));
    out.push(title((18.0, down), &chart.y_label, Anchor::Middle, TextSize::Plain, true));
}

/// A row of names under the title, each next to a piece of its line.
fn legend(chart: &Chart, out: &mut Vec<Mark>) {
    let mut x = LEFT;
    for series in chart.series.iter().filter(|series| !series.name.is_empty()) {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let points = vec![(x + 1.0, 45.0), (x + 17.0, 45.0)];
        out.push(Mark::Line { points, colour, width: 3.0, pale: false });
        out.push(text((x + 24.0, 48.5), series.name.clone(), Anchor::Start, INK));
        x += 24.0 + font::width(&series.name, TextSize::Plain.units()) + 20.0;
    }
}

/// At most four points for each unit across: the first, lowest, highest and last of those that fall
/// on it. The line looks the same.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= 4 * WIDTH as usize {
        return points;
    }
    let mut out: Vec<(f64, f64)> = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends =
            [column.first(), column.iter().min_by(by_height), column.iter().max_by(by_height)];
        for &point in ends.into_iter().chain([column.last()]).flatten() {
            if out.last() != Some(&point) {
                out.push(point);
            }
        }
    }
    out
}
