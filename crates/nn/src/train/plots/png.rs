//! Shapes as a PNG image.

use super::font;
use super::layout::{Anchor, HEIGHT, Mark, WIDTH};
use super::raster::Page;
use image::ImageFormat;
use pullback::{Error, Result};
use std::io::Cursor;

/// The bytes of a PNG file, with `scale` pixels for each unit of the page.
pub(super) fn bytes(shapes: &[Mark], scale: f64) -> Result<Vec<u8>> {
    if !(0.25..=16.0).contains(&scale) {
        let message = format!("the scale of a PNG is {scale}, and must be between 0.25 and 16");
        return Err(Error::argument("plot", message));
    }
    let mut page = Page::new((WIDTH * scale) as u32, (HEIGHT * scale) as u32);
    for shape in shapes {
        match shape {
            Mark::Line { points, colour, width, pale } => {
                let points: Vec<(f64, f64)> =
                    points.iter().map(|(x, y)| (x * scale, y * scale)).collect();
                page.line(&points, width * scale, *colour, if *pale { 0.3 } else { 1.0 });
            }
            Mark::Text { at, text, size, anchor, colour, upwards } => {
                let size = size.units() * scale;
                let width = font::width(text, size);
                let back = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => width / 2.0,
                    Anchor::End => width,
                };
                let (x, y) = (at.0 * scale, at.1 * scale);
                let at = if *upwards { (x, y + back) } else { (x - back, y) };
                page.text(at, text, size, *colour, *upwards);
            }
        }
    }
    let mut out = Cursor::new(Vec::new());
    let written = page.image.write_to(&mut out, ImageFormat::Png);
    written.map_err(|error| Error::argument("plot", format!("no PNG could be made: {error}")))?;
    Ok(out.into_inner())
}
