//! Writes in place.

use super::{Draws, fit, positive};
use pullback::Tensor;
use pullback::update::{AdamOptions, Moments, SgdOptions, adam_, sgd_};

/// One way to write into a tensor.
pub struct WriteRow {
    /// Its name in programs.
    pub name: &'static str,
    /// How many operands it takes besides the tensor it writes to.
    pub operands: usize,
    /// Writes; the operands have the shape of the tensor.
    pub run: fn(&Tensor, &[Tensor], &mut Draws) -> Tensor,
    /// Whether small dyadic numbers stay so.
    pub exact: bool,
}

impl std::fmt::Debug for WriteRow {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! writes {
    ($($name:ident $operands:literal $exact:literal |$y:ident, $x:ident, $d:ident| $body:expr;)*) => {
        &[$(WriteRow { name: stringify!($name), operands: $operands, exact: $exact, run: |$y, $x, $d| $body }),*]
    };
}

/// All of them.
#[rustfmt::skip]
pub const WRITES: &[WriteRow] = writes! {
    add_ 1 true |y, x, _d| y.add_(fit(&x[0], y.shape()));
    sub_ 1 true |y, x, _d| y.sub_(fit(&x[0], y.shape()));
    mul_ 1 true |y, x, _d| y.mul_(fit(&x[0], y.shape()));
    div_ 1 false |y, x, _d| y.div_(positive(&fit(&x[0], y.shape())));
    maximum_ 1 true |y, x, _d| y.maximum_(fit(&x[0], y.shape()));
    minimum_ 1 true |y, x, _d| y.minimum_(fit(&x[0], y.shape()));
    copy_ 1 true |y, x, _d| y.copy_(fit(&x[0], y.shape()));
    add_number_ 0 true |y, _x, d| y.add_(d.pick(&[0.5, -1.0]));
    mul_number_ 0 true |y, _x, d| y.mul_(d.pick(&[0.5, 2.0]));
    mul_self_ 0 true |y, _x, _d| y.mul_(y);
    maximum_self_ 0 true |y, _x, _d| y.maximum_(y);
    exp_ 0 false |y, _x, _d| y.exp_();
    tanh_ 0 false |y, _x, _d| y.tanh_();
    sigmoid_ 0 false |y, _x, _d| y.sigmoid_();
    relu_ 0 true |y, _x, _d| y.relu_();
    neg_ 0 true |y, _x, _d| y.neg_();
    sqrt_ 0 false |y, _x, _d| y.sqrt_();
    fill_ 0 true |y, _x, d| y.fill_(d.pick(&[0.5, 1.0]));
    zero_ 0 true |y, _x, _d| y.zero_();
    sgd_ 1 false |y, x, d| { let how = SgdOptions { weight_decay: d.pick(&[0.0, 0.25]), maximize: d.flag(), ..SgdOptions::default() }; sgd_(&how, &Tensor::from(0.5).cast(y.dtype()), y, &fit(&x[0], y.shape()).cast(y.dtype()), None); y.clone() };
    adam_ 1 false |y, x, d| { let how = AdamOptions { eps: 0.5, weight_decay: 0.25, decoupled: d.flag(), ..AdamOptions::default() }; let (mean, square) = (y.zeros_like(), y.zeros_like()); adam_(&how, &Tensor::from(0.5).cast(y.dtype()), y, &fit(&x[0], y.shape()).cast(y.dtype()), Moments { mean: &mean, square: &square, largest: None }, &Tensor::from(1i64)); y.clone() };
    first_mul_ 1 true |y, x, _d| { let part = y.reshape([y.len()]).narrow(0, 0, y.len() / 2); part.mul_(fit(&x[0], part.shape())) };
    flip_add_ 1 true |y, x, _d| { let part = y.flip(Vec::from_iter(0..y.rank() as isize)); part.add_(fit(&x[0], part.shape())) };
};
