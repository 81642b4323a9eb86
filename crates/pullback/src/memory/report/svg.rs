//! The report as a stacked chart of what is alive over time.

use super::text::amount;
use super::{MemoryKind, MemoryPhase, MemoryReport, MemorySample};
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
/// Where the layers are drawn.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 940.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 420.0;
/// More steps than this are not seen.
const COLUMNS: usize = 850;
/// About how wide a letter is.
const LETTER: f64 = 5.6;

/// From the bottom up: what does not change is drawn under what does.
const LAYERS: [MemoryKind; 6] = [
    MemoryKind::Parameters,
    MemoryKind::OptimizerState,
    MemoryKind::Inputs,
    MemoryKind::Gradients,
    MemoryKind::Activations,
    MemoryKind::Temporaries,
];

fn colour(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Parameters => "#1f6fb4",
        MemoryKind::Gradients => "#e06a1c",
        MemoryKind::OptimizerState => "#b55aa0",
        MemoryKind::Inputs => "#8a93a0",
        MemoryKind::Activations => "#129472",
        MemoryKind::Temporaries => "#d6a000",
    }
}

impl MemoryReport {
    /// The timeline as an SVG picture: what is alive while each op runs, one layer a kind, with the
    /// peak marked and named. It is self-contained.
    ///
    /// ```
    /// # use pullback::{Tensor, predict_memory};
    /// let w = Tensor::from([1.0f32, 2.0]).requires_grad();
    /// let report = predict_memory(|| w.exp().sum().backward())?;
    /// assert!(report.to_svg().starts_with("<svg "));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn to_svg(&self) -> String {
        let (columns, peak) = self.columns();
        let highest = self.peak().alive.total().max(1) as f64;
        let width = (RIGHT - LEFT) / columns.len() as f64;
        let x = |column: usize| LEFT + column as f64 * width;
        let y = |bytes: u64| BOTTOM - bytes as f64 / highest * (BOTTOM - TOP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let how = if self.predicted { "predicted from shapes" } else { "measured" };
        text(&mut out, (LEFT, 26.0), "start", 16, "#333840", &format!("Memory of a step, {how}"));
        self.legend(&mut out);
        for (bytes, label) in ticks(highest as u64) {
            line(&mut out, (LEFT, y(bytes)), (RIGHT, y(bytes)), "#e6e8ec", "");
            text(&mut out, (LEFT - 8.0, y(bytes) + 3.5), "end", 11, "#6b727d", &label);
        }
        let mut floor = vec![0u64; columns.len()];
        for kind in LAYERS.into_iter().filter(|&kind| self.most.of(kind) > 0) {
            let ceiling: Vec<u64> =
                columns.iter().zip(&floor).map(|(m, floor)| floor + m.alive.of(kind)).collect();
            let mut points = String::new();
            for (i, &bytes) in ceiling.iter().enumerate() {
                let _ =
                    write!(points, "{:.1},{:.1} {:.1},{:.1} ", x(i), y(bytes), x(i + 1), y(bytes));
            }
            for (i, &bytes) in floor.iter().enumerate().rev() {
                let _ =
                    write!(points, "{:.1},{:.1} {:.1},{:.1} ", x(i + 1), y(bytes), x(i), y(bytes));
            }
            let (points, fill, name) = (points.trim_end(), colour(kind), kind.name());
            let _ = writeln!(
                out,
                "<polygon points=\"{points}\" fill=\"{fill}\" fill-opacity=\"0.85\"><title>{name}</title></polygon>"
            );
            floor = ceiling;
        }
        phases(&mut out, &columns, x);
        line(&mut out, (LEFT, TOP), (LEFT, BOTTOM), "#b8bdc6", "");
        line(&mut out, (LEFT, BOTTOM), (RIGHT, BOTTOM), "#b8bdc6", "");
        let across = (x(peak) + x(peak + 1)) / 2.0;
        line(&mut out, (across, TOP - 12.0), (across, BOTTOM), "#c22", " stroke-dasharray=\"4 3\"");
        let label = format!("peak {}: {}", amount(self.peak().alive.total()), self.peak());
        // Next to the line, or further to the left where it does not fit. The end of a path says
        // more than its beginning.
        let space = ((RIGHT - LEFT) / LETTER) as usize;
        let cut = label.chars().count().saturating_sub(space);
        let label: String = match cut {
            0 => label,
            cut => ['…'].into_iter().chain(label.chars().skip(cut + 1)).collect(),
        };
        let farthest = RIGHT - LETTER * label.chars().count() as f64;
        let start = (across + 5.0).min(farthest).max(LEFT);
        text(&mut out, (start, TOP - 18.0), "start", 11, "#c22", &label);
        let under = format!("{} operations in order", self.timeline.len() - 2);
        text(&mut out, ((LEFT + RIGHT) / 2.0, HEIGHT - 14.0), "middle", 11, "#333840", &under);
        out.push_str("</svg>\n");
        out
    }

    /// The moments that are drawn, and which of them is the peak. Of more than can be seen, the
    /// fullest of those that fall on one place.
    fn columns(&self) -> (Vec<&MemorySample>, usize) {
        let count = self.timeline.len().min(COLUMNS);
        let start = |column: usize| column * self.timeline.len() / count;
        let mut out = Vec::with_capacity(count);
        let mut peak = 0;
        for column in 0..count {
            let range = start(column)..start(column + 1);
            if range.contains(&self.peak_at) {
                peak = column;
                out.push(self.peak());
                continue;
            }
            let fullest = self.timeline[range].iter().max_by_key(|m| m.alive.total());
            out.extend(fullest);
        }
        (out, peak)
    }

    fn legend(&self, out: &mut String) {
        let mut x = LEFT;
        for kind in LAYERS {
            let label = format!("{} {}", kind.name(), amount(self.most.of(kind)));
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"42\" width=\"12\" height=\"12\" fill=\"{}\"/>",
                colour(kind)
            );
            text(out, (x + 17.0, 52.0), "start", 11, "#333840", &label);
            x += 17.0 + LETTER * label.chars().count() as f64 + 14.0;
        }
    }
}

/// A bar under the layers for each interval of a phase.
fn phases(out: &mut String, columns: &[&MemorySample], x: impl Fn(usize) -> f64) {
    let mut first = 0;
    for stretch in columns.chunk_by(|a, b| a.phase == b.phase) {
        let (from, to) = (x(first), x(first + stretch.len()));
        first += stretch.len();
        let phase = stretch[0].phase;
        let fill = match phase {
            MemoryPhase::Forward => "#dfe7f1",
            MemoryPhase::Backward => "#f4e3d7",
            MemoryPhase::Step => "#ecdfea",
        };
        let _ = writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" fill=\"{fill}\"/>",
            BOTTOM + 4.0,
            to - from
        );
        if to - from > 50.0 {
            let at = ((from + to) / 2.0, BOTTOM + 16.0);
            text(out, at, "middle", 11, "#6b727d", phase.name());
        }
    }
}

/// Round amounts up to the highest, four to eight of them.
fn ticks(highest: u64) -> Vec<(u64, String)> {
    let step = (highest / 4).max(1);
    let step = 1u64 << step.ilog2();
    (0..=highest / step).map(|i| (i * step, amount(i * step))).collect()
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, more: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"{more}/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, at: (f64, f64), anchor: &str, size: u32, colour: &str, text: &str) {
    let weight = if size > 11 { " font-weight=\"600\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\"{weight} text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
        at.0,
        at.1,
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
