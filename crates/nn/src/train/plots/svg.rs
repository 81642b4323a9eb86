//! Shapes as SVG.

use super::layout::{Anchor, Colour, HEIGHT, Mark, TextSize, WIDTH};
use std::fmt::Write as _;

/// The text of an SVG file.
pub(super) fn text(shapes: &[Mark]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for shape in shapes {
        // Writing to a string cannot fail.
        let _ = match shape {
            Mark::Line { points, colour, width, pale } => {
                let points: Vec<String> =
                    points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
                let opacity = if *pale { " stroke-opacity=\"0.3\"" } else { "" };
                writeln!(
                    out,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{opacity} \
                     stroke-linecap=\"round\" stroke-linejoin=\"round\"/>",
                    points.join(" "),
                    hex(*colour)
                )
            }
            Mark::Text { text, .. } if text.is_empty() => Ok(()),
            Mark::Text { at: (x, y), text, size, anchor, colour, upwards } => {
                let (x, y) = (number(*x), number(*y));
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let font = match size {
                    TextSize::Plain => "font-size=\"11\"",
                    TextSize::Title => "font-size=\"16\" font-weight=\"600\"",
                };
                let turned = match upwards {
                    true => format!(" transform=\"rotate(-90 {x} {y})\""),
                    false => String::new(),
                };
                writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{y}\" {font} text-anchor=\"{anchor}\" fill=\"{}\"{turned}>{}</text>",
                    hex(*colour),
                    escaped(text)
                )
            }
        };
    }
    out.push_str("</svg>\n");
    out
}

fn hex(colour: Colour) -> String {
    let [r, g, b] = colour;
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// To a tenth of a unit, which is more than one sees.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
