//! Pixels around an image.

use pullback::{Error, Result, Tensor, catch};

/// What the padding of an image holds: torchvision's `constant`, `edge`, `reflect` and `symmetric`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{PaddingMode, RandomCrop, Transform};
/// let crop = RandomCrop::new((1, 5)).padding((1, 0)).padding_mode(PaddingMode::Reflect);
/// let y = crop.apply(Tensor::from([[[1, 2, 3]]]), ItemSeed::new(0, 0, 0))?;
/// assert_eq!(y.to_vec::<i32>(), [2, 1, 2, 3, 2]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingMode {
    /// One value.
    Constant,
    /// The pixel at the edge: `a a | a b c | c c`.
    Edge,
    /// The image mirrored at its outer pixels: `c b | a b c | b a`.
    Reflect,
    /// The image mirrored at its edges: `b a | a b c | c b`.
    Symmetric,
}

/// The number of pixels of padding: one number for all sides, `(left and right, top and bottom)`,
/// or `[left, top, right, bottom]`.
///
/// ```
/// use pullback_nn::data::transforms::Margins;
/// let m = Margins::from((1, 2));
/// assert_eq!((m.left, m.top, m.right, m.bottom), (1, 2, 1, 2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margins {
    /// Columns before the first.
    pub left: usize,
    /// Rows above the first.
    pub top: usize,
    /// Columns after the last.
    pub right: usize,
    /// Rows below the last.
    pub bottom: usize,
}

impl From<usize> for Margins {
    fn from(n: usize) -> Margins {
        Margins::from([n; 4])
    }
}

impl From<(usize, usize)> for Margins {
    fn from((x, y): (usize, usize)) -> Margins {
        Margins::from([x, y, x, y])
    }
}

impl From<[usize; 4]> for Margins {
    fn from([left, top, right, bottom]: [usize; 4]) -> Margins {
        Margins { left, top, right, bottom }
    }
}

/// An image `[c, h, w]` with pixels around it.
pub(super) fn padded(
    name: &'static str,
    image: Tensor,
    margins: Margins,
    mode: PaddingMode,
    fill: f64,
) -> Result<Tensor> {
    if margins == Margins::default() {
        return Ok(image);
    }
    let Margins { left, top, right, bottom } = margins;
    if mode == PaddingMode::Constant {
        let around = [(0, 0), (top, bottom), (left, right)];
        return catch(|| match image.dtype().is_float() {
            true => image.pad_with(around, fill),
            false => image.pad_with(around, fill.round() as i64),
        });
    }
    let (h, w) = (image.shape()[1], image.shape()[2]);
    let rows = places(name, mode, h, (top, bottom))?;
    let columns = places(name, mode, w, (left, right))?;
    catch(|| image.index_select(1, &Tensor::from(rows)).index_select(2, &Tensor::from(columns)))
}

/// Which element each place of a padded axis shows.
fn places(
    name: &'static str,
    mode: PaddingMode,
    n: usize,
    (before, after): (usize, usize),
) -> Result<Vec<i64>> {
    let most = match mode {
        PaddingMode::Reflect => n - 1,
        PaddingMode::Symmetric => n,
        _ => usize::MAX,
    };
    if before.max(after) > most {
        let message =
            format!("an axis of {n} pixels is too short to mirror {} of them", before.max(after));
        return Err(Error::argument(name, message));
    }
    let (n, before) = (n as i64, before as i64);
    let place = |i: i64| match mode {
        PaddingMode::Reflect if i < 0 => -i,
        PaddingMode::Reflect if i >= n => 2 * (n - 1) - i,
        PaddingMode::Symmetric if i < 0 => -i - 1,
        PaddingMode::Symmetric if i >= n => 2 * n - 1 - i,
        _ => i.clamp(0, n - 1),
    };
    Ok((-before..n + after as i64).map(place).collect())
}
