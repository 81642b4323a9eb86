//! The letters of PNG plots: outlines of DejaVu Sans (its licence is next to them), with ASCII,
//! Latin-1, Greek and symbols of formulas. `make.py` took them from the font.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What a letter is made of.
static FONT: LazyLock<Font> = LazyLock::new(|| Font::read(include_str!("dejavu_sans.txt")));

/// A point of an outline, to the right and up from the start of the letter's base line.
pub(super) type OutlinePoint = (f64, f64);

struct Font {
    /// How many units the size of a letter is.
    units: f64,
    /// For each letter, how far the next one is, in units, and its outline.
    letters: HashMap<char, (f64, &'static str)>,
}

impl Font {
    /// Reads the format that `make.py` describes. A line that is not of it is left out: then the
    /// letter is a box.
    fn read(text: &'static str) -> Font {
        let mut lines = text.lines();
        let units = lines.next().and_then(|units| units.parse().ok()).unwrap_or(1.0);
        let letter = |line: &'static str| {
            let mut words = line.splitn(3, ' ');
            let letter = char::from_u32(u32::from_str_radix(words.next()?, 16).ok()?)?;
            let advance = words.next()?.parse().ok()?;
            Some((letter, (advance, words.next().unwrap_or_default())))
        };
        Font { units, letters: lines.filter_map(letter).collect() }
    }

    /// How far the next letter is, and the outline. A letter that the font does not have is a box.
    fn letter(&self, letter: char) -> (f64, &'static str) {
        const BOX: &str = "M102-362l0 1806 1024 0 0-1806M217-248l794 0 0 1577-794 0";
        self.letters.get(&letter).copied().unwrap_or((1229.0, BOX))
    }
}

/// How wide a text is in letters of this size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|letter| FONT.letter(letter).0).sum::<f64>() * size / FONT.units
}

/// The outlines of the letters of a text of this size: closed lines, each through many points, so
/// that curves are exact to a twentieth of a unit of `size`.
pub(super) fn outlines(text: &str, size: f64) -> Vec<Vec<Vec<OutlinePoint>>> {
    let scale = size / FONT.units;
    let mut start = 0.0;
    let letter = |letter: char| {
        let (advance, path) = FONT.letter(letter);
        let contours = contours(path, |(x, y)| (start + x * scale, y * scale));
        start += advance * scale;
        contours
    };
    text.chars().map(letter).collect()
}

/// The closed lines of a path, with curves as pieces of lines, each point mapped.
fn contours(path: &str, map: impl Fn(OutlinePoint) -> OutlinePoint) -> Vec<Vec<OutlinePoint>> {
    let mut out: Vec<Vec<OutlinePoint>> = Vec::new();
    let mut last = (0.0, 0.0);
    for (kind, numbers) in commands(path) {
        let points = numbers.chunks_exact(2).map(|xy| (xy[0], xy[1]));
        let points: Vec<OutlinePoint> = points.collect();
        let from = |(x, y): OutlinePoint, by: OutlinePoint| (x + by.0, y + by.1);
        match kind {
            'M' => {
                last = points.first().copied().unwrap_or_default();
                out.push(vec![map(last)]);
            }
            'l' => points.into_iter().for_each(|by| {
                last = from(last, by);
                out.last_mut().into_iter().for_each(|line| line.push(map(last)));
            }),
            _ => points.chunks_exact(2).for_each(|pair| {
                let curve = [last, from(last, pair[0]), from(last, pair[1])];
                last = curve[2];
                out.last_mut().into_iter().for_each(|line| bend(curve.map(&map), line));
            }),
        }
    }
    out
}

/// The letters of a path, each with the numbers after it.
fn commands(path: &str) -> Vec<(char, Vec<f64>)> {
    let mut out = Vec::new();
    let starts = |c: char| c.is_ascii_alphabetic();
    for (at, kind) in path.match_indices(starts) {
        let rest = &path[at + 1..];
        let numbers = &rest[..rest.find(starts).unwrap_or(rest.len())];
        // A sign starts a number, as a space does.
        let numbers = numbers.replace('-', " -");
        let numbers = numbers.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
        out.push((kind.chars().next().unwrap_or('M'), numbers));
    }
    out
}

/// Appends pieces of a quadratic curve to a line that ends at its first point.
fn bend([a, b, c]: [OutlinePoint; 3], line: &mut Vec<OutlinePoint>) {
    // A curve cut into n pieces is at most 1/n² of this from them.
    let away = (a.0 - 2.0 * b.0 + c.0).hypot(a.1 - 2.0 * b.1 + c.1) / 4.0;
    let pieces = (away / 0.05).sqrt().ceil().clamp(1.0, 64.0);
    for i in 1..=pieces as u32 {
        let t = f64::from(i) / pieces;
        let at = |a: f64, b: f64, c: f64| {
            (1.0 - t).powi(2) * a + 2.0 * t * (1.0 - t) * b + t.powi(2) * c
        };
        line.push((at(a.0, b.0, c.0), at(a.1, b.1, c.1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What outlines enclose, counted by the direction in which they go.
    fn area(text: &str, size: f64) -> f64 {
        let piece = |(a, b): (&OutlinePoint, &OutlinePoint)| (a.0 * b.1 - b.0 * a.1) / 2.0;
        let around = |line: &Vec<OutlinePoint>| {
            line.iter().zip(line.iter().cycle().skip(1)).map(piece).sum::<f64>()
        };
        outlines(text, size).iter().flatten().map(around).sum::<f64>().abs()
    }

    #[test]
    fn letters_have_outlines_and_widths_of_their_own() {
        let ascii: String = (' '..='~').collect();
        let others = "äéßñ×·±°µ²³¹⁻αβγδεθλμπρσφωΔΣΩ−∞≈≠≤≥√∂∇∑→…–";
        for letter in ascii.chars().chain(others.chars()) {
            assert!(FONT.letters.contains_key(&letter), "no {letter:?}");
            let text = letter.to_string();
            assert!(width(&text, 10.0) > 1.0, "{letter:?}");
            assert_eq!(letter == ' ', area(&text, 100.0) < 10.0, "{letter:?}");
        }
        assert!(width("i", 10.0) < width("n", 10.0) && width("n", 10.0) < width("W", 10.0));
        assert!((width("loss 0.5", 22.0) - 2.0 * width("loss 0.5", 11.0)).abs() < 1e-9);
        // A circle with a circle in it, more exactly at a larger size.
        let o = area("o", 1000.0) / 1000f64.powi(2);
        assert!((area("o", 11.0) / 11f64.powi(2) / o - 1.0).abs() < 0.05);
        assert!((area("oo", 1000.0) / 1000f64.powi(2) - 2.0 * o).abs() < 1e-9);
        // Not there: a frame.
        assert!(!FONT.letters.contains_key(&'漢') && area("漢", 100.0) > 10.0);
    }

    #[test]
    fn outlines_stay_within_their_lines() {
        for letter in FONT.letters.keys() {
            let all = outlines(&letter.to_string(), 1.0);
            for &(x, y) in all.iter().flatten().flatten() {
                assert!((-0.3..1.6).contains(&x) && (-0.4..1.2).contains(&y), "{letter:?} {x} {y}");
            }
        }
    }
}
