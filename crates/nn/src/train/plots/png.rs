//! Shapes as a PNG image.

use super::font;
use super::layout::{Anchor, HEIGHT, Mark, TextSize, WIDTH};
use super::raster::Page;
use image::ImageFormat;
use pullback::{Error, Result};
use std::io::Cursor;

/// Pixels for each unit of the page.
const SCALE: f64 = 2.0;

/// The bytes of a PNG file.
pub(super) fn bytes(shapes: &[Mark]) -> Result<Vec<u8>> {
    let mut page = Page::new((WIDTH * SCALE) as u32, (HEIGHT * SCALE) as u32);
    for shape in shapes {
        match shape {
            Mark::Line { points, colour, width, pale } => {
                let points: Vec<(f64, f64)> =
                    points.iter().map(|(x, y)| (x * SCALE, y * SCALE)).collect();
                page.line(&points, width * SCALE, *colour, if *pale { 0.3 } else { 1.0 });
            }
            Mark::Text { at, text, size, anchor, colour, upwards } => {
                let scale = match size {
                    TextSize::Plain => 2,
                    TextSize::Title => 3,
                };
                let count = text.chars().count() as f64;
                let width = (count * (font::WIDTH as f64 + 1.0) - 1.0).max(0.0) * f64::from(scale);
                let back = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => width / 2.0,
                    Anchor::End => width,
                };
                let (x, y) = (at.0 * SCALE, at.1 * SCALE);
                let at = if *upwards { (x, y + back) } else { (x - back, y) };
                page.text(at, text, scale, *colour, *upwards);
            }
        }
    }
    let mut out = Cursor::new(Vec::new());
    let written = page.image.write_to(&mut out, ImageFormat::Png);
    written.map_err(|error| Error::argument("plot", format!("no PNG could be made: {error}")))?;
    Ok(out.into_inner())
}
