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

    /// A text in letters of this size, from a point on its base line; to the right, or upwards.
    pub fn text(&mut self, at: (f64, f64), text: &str, size: f64, colour: Colour, upwards: bool) {
        // A base line between two rows of pixels would blur the feet of all letters.
        let (left, base) = if upwards { (at.0.round(), at.1) } else { (at.0, at.1.round()) };
        let placed = |&(across, up): &font::OutlinePoint| match upwards {
            false => (left + across, base - up),
            // What was up is to the left.
            true => (left - up, base - across),
        };
        for letter in font::outlines(text, size) {
            let lines: Vec<Vec<(f64, f64)>> =
                letter.iter().map(|line| line.iter().map(placed).collect()).collect();
            self.fill(&lines, colour);
        }
    }

    /// The area inside closed lines.
    fn fill(&mut self, lines: &[Vec<(f64, f64)>], colour: Colour) {
        let points = || lines.iter().flatten();
        let (left, top) = points().fold((f64::MAX, f64::MAX), |l, p| (l.0.min(p.0), l.1.min(p.1)));
        let (right, bottom) =
            points().fold((f64::MIN, f64::MIN), |h, p| (h.0.max(p.0), h.1.max(p.1)));
        if !(left <= right && top <= bottom) {
            return;
        }
        let (left, top) = (left.floor(), top.floor());
        let mut area = Area::new((right - left) as usize + 2, (bottom - top) as usize + 1);
        let within = |p: &(f64, f64)| (p.0 - left, p.1 - top);
        for line in lines {
            let ends = line.iter().zip(line.iter().cycle().skip(1));
            ends.for_each(|(a, b)| area.edge(within(a), within(b)));
        }
        for (y, row) in area.rows().enumerate() {
            let mut covered = 0.0;
            for (x, change) in row.iter().enumerate() {
                covered += change;
                let opacity = f64::abs(covered).min(1.0);
                let (x, y) = (left + x as f64, top + y as f64);
                if opacity > 1e-3 && x >= 0.0 && y >= 0.0 {
                    self.blend(x as u32, y as u32, colour, opacity);
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

/// How much of each pixel is inside closed lines: exactly, as an area, for straight lines.
///
/// An edge that goes down through a pixel covers what is to the right of it, in this pixel and all
/// later ones of its row. So what is stored for a pixel is how much more is covered than in the one
/// before it; an edge changes two of them, and a running sum gives the coverage.
struct Area {
    width: usize,
    changes: Vec<f64>,
}

impl Area {
    fn new(width: usize, height: usize) -> Area {
        Area { width: width + 1, changes: vec![0.0; (width + 1) * height] }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.changes.chunks_exact(self.width)
    }

    /// Adds an edge between two points that are inside.
    fn edge(&mut self, a: (f64, f64), b: (f64, f64)) {
        let (sign, a, b) = if a.1 <= b.1 { (1.0, a, b) } else { (-1.0, b, a) };
        let x_at = |y: f64| a.0 + (b.0 - a.0) * (y - a.1) / (b.1 - a.1);
        for row in a.1 as usize..b.1.ceil() as usize {
            let (from, to) = (a.1.max(row as f64), b.1.min(row as f64 + 1.0));
            let (low, high) = (x_at(from).min(x_at(to)), x_at(from).max(x_at(to)));
            for column in low as usize..=high as usize {
                let (l, h) = (low.max(column as f64), high.min(column as f64 + 1.0));
                let share = if high > low { (h - l) / (high - low) } else { 1.0 };
                let height = sign * (to - from) * share;
                let right = height * ((l + h) / 2.0 - column as f64);
                let at = row * self.width + column;
                self.changes[at] += height - right;
                self.changes[at + 1] += right;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How dark the pixels are together: 1 for each that is covered.
    fn ink(page: &Page) -> f64 {
        page.image.pixels().map(|pixel| f64::from(255 - pixel.0[0]) / 255.0).sum()
    }

    #[test]
    fn areas_are_exact() {
        let square = [(2.25, 3.5), (6.75, 3.5), (6.75, 8.0), (2.25, 8.0)].to_vec();
        let mut page = Page::new(12, 12);
        page.fill(&[square], [0; 3]);
        assert!((ink(&page) - 4.5 * 4.5).abs() < 0.05, "{}", ink(&page));
        let at = |x: u32, y: u32| page.image.get_pixel(x, y).0[0];
        // Whole, a half, three quarters, and nothing.
        assert_eq!((at(4, 5), at(4, 3), at(2, 5), at(7, 5)), (0, 128, 64, 255));
        let triangle = [(1.0, 1.0), (10.0, 3.0), (4.0, 11.0)].to_vec();
        let mut page = Page::new(12, 12);
        page.fill(&[triangle], [0; 3]);
        assert!((ink(&page) - 42.0).abs() < 0.2, "{}", ink(&page));
    }

    #[test]
    fn a_text_is_the_same_upwards() {
        let text = "loss −0.5 µs";
        let (mut across, mut up) = (Page::new(200, 40), Page::new(40, 200));
        across.text((10.0, 30.0), text, 22.0, [0; 3], false);
        up.text((30.0, 190.0), text, 22.0, [0; 3], true);
        for (x, y, pixel) in across.image.enumerate_pixels() {
            let turned = up.image.get_pixel(y, 199 - x);
            assert!(pixel.0[0].abs_diff(turned.0[0]) <= 1, "at {x}, {y}: {pixel:?}, {turned:?}");
        }
        assert!(ink(&across) > 100.0);
        // What goes beyond the page is cut off.
        across.text((-5.0, 3.0), text, 300.0, [0; 3], false);
    }
}
