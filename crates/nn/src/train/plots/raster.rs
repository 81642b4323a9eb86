//! Lines and letters on pixels.
//!
//! A line covers a pixel by how far it is from the pixel's middle: all of it within half the line's
//! width, none of it one pixel further. The coverage of a whole line through many points is the
//! largest of its pieces', so joints are round and pale lines do not darken where they meet.

use super::font;
use super::layout::Colour;
use image::{Rgb, RgbImage};

/// A white page with its pixels.
pub(super) struct Page {
    pub image: RgbImage,
    /// How much of each pixel is covered by what is being drawn.
    coverage: Vec<f32>,
}

impl Page {
    pub fn new(width: u32, height: u32) -> Page {
        let image = RgbImage::from_pixel(width, height, Rgb([255; 3]));
        Page { image, coverage: vec![0.0; (width * height) as usize] }
    }

    /// A line through points, in pixels.
    pub fn line(&mut self, points: &[(f64, f64)], width: f64, colour: Colour, opacity: f64) {
        let (columns, rows) = (self.image.width() as usize, self.image.height() as usize);
        let reach = width / 2.0 + 1.0;
        let range = |a: f64, b: f64, size: usize| {
            let low = (a.min(b) - reach).floor().clamp(0.0, size as f64) as usize;
            let high = (a.max(b) + reach).ceil().clamp(0.0, size as f64) as usize;
            low..high
        };
        let mut touched = Vec::new();
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            for y in range(from.1, to.1, rows) {
                for x in range(from.0, to.0, columns) {
                    let middle = (x as f64 + 0.5, y as f64 + 0.5);
                    let covered =
                        (width / 2.0 + 0.5 - distance(middle, from, to)).clamp(0.0, 1.0) as f32;
                    let held = &mut self.coverage[y * columns + x];
                    if covered > *held {
                        if *held == 0.0 {
                            touched.push((x, y));
                        }
                        *held = covered;
                    }
                }
            }
        }
        for (x, y) in touched {
            let covered = std::mem::take(&mut self.coverage[y * columns + x]);
            self.blend(x as u32, y as u32, colour, f64::from(covered) * opacity);
        }
    }

    /// A text whose letters are as high as seven times `scale` pixels, from a point on its base
    /// line; to the right, or upwards.
    pub fn text(&mut self, at: (f64, f64), text: &str, scale: u32, colour: Colour, upwards: bool) {
        let (left, base) = (at.0.round() as i64, at.1.round() as i64);
        let scale = i64::from(scale);
        for (i, letter) in text.chars().enumerate() {
            let glyph = font::glyph(letter);
            for (row, bits) in glyph.into_iter().enumerate() {
                for column in
                    (0..font::WIDTH).filter(|column| bits >> (font::WIDTH - 1 - column) & 1 == 1)
                {
                    let across = (i as i64 * (font::WIDTH as i64 + 1) + column as i64) * scale;
                    let up = (font::BASE as i64 - row as i64) * scale;
                    for (dx, dy) in (0..scale * scale).map(|k| (k % scale, k / scale)) {
                        let (x, y) = match upwards {
                            false => (left + across + dx, base - up + dy),
                            // What was up is to the left.
                            true => (left - up + dy, base - across - dx - 1),
                        };
                        if let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) {
                            self.blend(x, y, colour, 1.0);
                        }
                    }
                }
            }
        }
    }

    fn blend(&mut self, x: u32, y: u32, colour: Colour, opacity: f64) {
        if let Some(Rgb(old)) = self.image.get_pixel_mut_checked(x, y) {
            for (old, new) in old.iter_mut().zip(colour) {
                *old = (f64::from(*old) * (1.0 - opacity) + f64::from(new) * opacity).round() as u8;
            }
        }
    }
}

/// How far a point is from a piece of a line.
fn distance(p: (f64, f64), a: (f64, f64), b: (f64, f64)) -> f64 {
    let (along, to) = ((b.0 - a.0, b.1 - a.1), (p.0 - a.0, p.1 - a.1));
    let length = along.0 * along.0 + along.1 * along.1;
    let t = if length == 0.0 {
        0.0
    } else {
        ((to.0 * along.0 + to.1 * along.1) / length).clamp(0.0, 1.0)
    };
    (to.0 - t * along.0).hypot(to.1 - t * along.1)
}
