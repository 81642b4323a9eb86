//! Rotary positions: queries and keys rotated by angles that grow with their position, so that
//! their products depend on distances alone.

use crate::refuse::refuse;
use pullback::{DType, Error, Tensor, Tree, cat, stack};

/// Rotates pairs of features by the angle position · base^(−2i/d), where i is the number of the
/// pair and d the number of rotated features.
///
/// Pairs are the features i and i + d/2 (as in GPT-NeoX and Llama's files), or neighbours if
/// [`Rotary::interleaved`] (as in the paper). It has no parameters. Angles are computed in `f64`,
/// so that far positions do not lose digits.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Rotary;
/// let rotary = Rotary::new(4);
/// let x = Tensor::ones([2, 3, 4]);
/// // The first position is not rotated.
/// assert_eq!(rotary.rotate(&x, 0).at((0, 0)).to_vec::<f32>(), [1.0; 4]);
/// // Position 2 of a sequence is position 0 of one that starts two later.
/// let (a, b) = (rotary.rotate(&x, 0).at((0, 2)), rotary.rotate(&x, 2).at((0, 0)));
/// assert_eq!(a.to_vec::<f32>(), b.to_vec::<f32>());
/// ```
#[derive(Clone, Copy, Debug, Tree)]
#[must_use]
pub struct Rotary {
    features: usize,
    base: f64,
    interleaved: bool,
}

impl Rotary {
    /// Rotates the first `features` features (an even number; those of a head, or fewer), with a
    /// base of 10000.
    pub fn new(features: usize) -> Rotary {
        Rotary { features, base: 10_000.0, interleaved: false }
    }

    /// The base of the angles: the larger it is, the slower the angles of later pairs grow.
    pub fn base(self, base: f64) -> Rotary {
        Rotary { base, ..self }
    }

    /// Pairs are neighbours.
    pub fn interleaved(self) -> Rotary {
        Rotary { interleaved: true, ..self }
    }

    /// `x` (`[.., positions, features]`) rotated, the first of its positions being number `offset`.
    ///
    /// # Panics
    /// With the operand and the caller's line, if it does not have the features.
    #[track_caller]
    #[must_use]
    pub fn rotate(&self, x: &Tensor, offset: usize) -> Tensor {
        let length = x.shape().len().checked_sub(2).map_or(0, |axis| x.shape()[axis]);
        self.rotate_at(x, &x.new_arange(offset as i64, (offset + length) as i64))
    }

    /// `x` (`[.., positions, features]`) rotated, with these positions (`[positions]`, integers).
    /// They may be values that a compiled function computes.
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn rotate_at(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        let turned = self.features;
        if x.rank() < 2 || x.shape()[x.rank() - 1] < turned || turned % 2 == 1 {
            let message = match turned % 2 {
                1 => {
                    format!("rotates pairs of features, so their number must be even, not {turned}")
                }
                _ => format!("takes [.., positions, {turned} features or more], not {}", x.spec()),
            };
            refuse(Error::shape("Rotary", message).on([x.spec()]));
        }
        if positions.rank() != 1 || positions.len() != x.shape()[x.rank() - 2] {
            let message = format!("{} takes one position each, not {}", x.spec(), positions.spec());
            refuse(Error::shape("Rotary", message).on([x.spec(), positions.spec()]));
        }
        let pairs = turned / 2;
        let speed = |i: usize| self.base.powf(-2.0 * i as f64 / turned as f64);
        let speeds = x.new_tensor((0..pairs).map(speed).collect::<Vec<f64>>());
        let angles = positions.cast(DType::F64).unsqueeze(1) * speeds;
        let (cos, sin) = (angles.cos().cast(x.dtype()), angles.sin().cast(x.dtype()));
        let part = x.narrow(-1, 0, turned);
        let (a, b) = if self.interleaved {
            let split = part.unflatten(-1, [pairs, 2]);
            (split.select_at(-1, 0), split.select_at(-1, 1))
        } else {
            (part.narrow(-1, 0, pairs), part.narrow(-1, pairs as isize, pairs))
        };
        let (first, second) = (&a * &cos - &b * &sin, a * sin + b * cos);
        let y = match self.interleaved {
            true => stack(&[&first, &second], -1).flatten(-2, -1),
            false => cat(&[&first, &second], -1),
        };
        let rest = x.shape()[x.rank() - 1] - turned;
        match rest {
            0 => y,
            _ => cat(&[&y, &x.narrow(-1, turned as isize, rest)], -1),
        }
    }
}
