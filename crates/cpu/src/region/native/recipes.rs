//! The native code of each function, as named in the rows.
//!
//! Every formula here is the one in `pointwise::float`, operation by operation: nothing is fused,
//! reordered or approximated, so the bits are the same. Those of `f32` alone are in `functions`.

use super::micro::{CUT, DOWN, GT, LE, LT, Lane, Micro, NEAREST, UP, Writer, none};
use pullback_ir::{Binary, DType, Op, Result, Unary, binary_rows, unary_rows};

/// The code of a function of `N` values.
pub(super) enum FunctionCode<const N: usize> {
    /// No native code: kernels are called.
    None,
    /// For floats of either width, and for booleans where `infer` accepts them.
    Any(fn(&mut Writer, [usize; N], Lane) -> usize),
    F32(fn(&mut Writer, [usize; N]) -> usize),
    Truth(fn(&mut Writer, [usize; N], Lane) -> usize),
}

impl<const N: usize> FunctionCode<N> {
    /// Whether there is code for operands of a dtype.
    pub(super) fn fits(&self, dtype: DType) -> bool {
        match self {
            FunctionCode::None => false,
            FunctionCode::Any(_) => true,
            FunctionCode::F32(_) => dtype == DType::F32,
            FunctionCode::Truth(_) => dtype == DType::Bool,
        }
    }

    pub(super) fn write(
        &self,
        writer: &mut Writer,
        x: [usize; N],
        lane: Lane,
        op: &Op,
    ) -> Result<usize> {
        match self {
            FunctionCode::None => none(op),
            FunctionCode::Any(code) | FunctionCode::Truth(code) => Ok(code(writer, x, lane)),
            FunctionCode::F32(code) => Ok(code(writer, x)),
        }
    }
}

/// The recipe that a row names: a function here, or one of [`Writer`] for `f32` alone.
macro_rules! recipe {
    (none, $at:ident, $name:ident) => {
        FunctionCode::None
    };
    (any, $at:ident, $name:ident) => {
        FunctionCode::Any($at::$name)
    };
    (truth, $at:ident, $name:ident) => {
        FunctionCode::Truth($at::$name)
    };
    (f32, value, $name:ident) => {
        FunctionCode::F32(|w, [x]| w.$name(x))
    };
    (f32, slope, $name:ident) => {
        FunctionCode::F32(|w, [x, dy]| super::functions::slope::$name(w, x, dy))
    };
}

macro_rules! of_one {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
    )*) => {
        /// The code of a function of one element.
        pub(super) fn unary(f: Unary) -> FunctionCode<1> {
            match f { $(Unary::$f => recipe!($native, value, $name)),* }
        }

        /// The code of `dy · f'`, from the saved value.
        pub(super) fn vjp(f: Unary) -> FunctionCode<2> {
            match f { $(Unary::$f => recipe!($native_vjp, slope, $name)),* }
        }
    };
}
unary_rows!(of_one);

macro_rules! of_two {
    ($(
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident
        $cuda:tt;
    )*) => {
        /// The code of a function of two elements.
        pub(super) fn binary(f: Binary) -> FunctionCode<2> {
            match f { $(Binary::$f => recipe!($native, pair, $name)),* }
        }
    };
}
binary_rows!(of_two);

/// Functions.
mod value {
    use super::{CUT, DOWN, GT, LE, LT, Lane, Micro::*, NEAREST, UP, Writer};

    pub(super) fn not(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Not, &[x])
    }

    pub(super) fn neg(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        let sign = w.sign(l, false);
        w.does(l, Xor, &[x, sign])
    }

    pub(super) fn abs(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        let others = w.sign(l, true);
        w.does(l, And, &[x, others])
    }

    pub(super) fn sign(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        let (zero, one, less) = (w.number(l, 0.0), w.number(l, 1.0), w.number(l, -1.0));
        let negative = w.does(Lane::Mask, Compare(LT), &[x, zero]);
        let rest = w.does(l, Select, &[negative, less, x]);
        let positive = w.does(Lane::Mask, Compare(GT), &[x, zero]);
        w.does(l, Select, &[positive, one, rest])
    }

    pub(super) fn floor(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Round(DOWN), &[x])
    }

    pub(super) fn ceil(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Round(UP), &[x])
    }

    pub(super) fn round(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Round(NEAREST), &[x])
    }

    pub(super) fn trunc(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Round(CUT), &[x])
    }

    pub(super) fn stop_gradient(_: &mut Writer, [x]: [usize; 1], _: Lane) -> usize {
        x
    }

    pub(super) fn square(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Mul, &[x, x])
    }

    pub(super) fn sqrt(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        w.does(l, Sqrt, &[x])
    }

    pub(super) fn rsqrt(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        let (one, root) = (w.number(l, 1.0), w.does(l, Sqrt, &[x]));
        w.does(l, Div, &[one, root])
    }

    pub(super) fn recip(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        let one = w.number(l, 1.0);
        w.does(l, Div, &[one, x])
    }

    pub(super) fn relu(w: &mut Writer, [x]: [usize; 1], l: Lane) -> usize {
        let zero = w.number(l, 0.0);
        let low = w.does(Lane::Mask, Compare(LE), &[x, zero]);
        w.does(l, Select, &[low, zero, x])
    }
}

/// Derivatives times cotangents: from the saved value and `dy`.
mod slope {
    use super::{GT, LE, LT, Lane, Micro::*, Writer};
    pub(super) use crate::region::native::functions::either::*;

    pub(super) fn relu(w: &mut Writer, [y, dy]: [usize; 2], l: Lane) -> usize {
        let zero = w.number(l, 0.0);
        let low = w.does(Lane::Mask, Compare(LE), &[y, zero]);
        w.does(l, Select, &[low, zero, dy])
    }

    pub(super) fn sqrt(w: &mut Writer, [y, dy]: [usize; 2], l: Lane) -> usize {
        let half = w.number(l, 0.5);
        let half = w.does(l, Mul, &[half, dy]);
        w.does(l, Div, &[half, y])
    }

    pub(super) fn rsqrt(w: &mut Writer, [y, dy]: [usize; 2], l: Lane) -> usize {
        let half = w.number(l, -0.5);
        let half = w.does(l, Mul, &[half, dy]);
        let square = w.does(l, Mul, &[y, y]);
        let cube = w.does(l, Mul, &[square, y]);
        w.does(l, Mul, &[half, cube])
    }

    pub(super) fn recip(w: &mut Writer, [y, dy]: [usize; 2], l: Lane) -> usize {
        let sign = w.sign(l, false);
        let minus = w.does(l, Xor, &[dy, sign]);
        let square = w.does(l, Mul, &[y, y]);
        w.does(l, Mul, &[minus, square])
    }

    pub(super) fn square(w: &mut Writer, [x, dy]: [usize; 2], l: Lane) -> usize {
        let two = w.number(l, 2.0);
        let twice = w.does(l, Mul, &[two, x]);
        w.does(l, Mul, &[twice, dy])
    }

    pub(super) fn abs(w: &mut Writer, [x, dy]: [usize; 2], l: Lane) -> usize {
        let (zero, sign) = (w.number(l, 0.0), w.sign(l, false));
        let product = w.does(l, Mul, &[x, dy]);
        let minus = w.does(l, Xor, &[dy, sign]);
        let negative = w.does(Lane::Mask, Compare(LT), &[x, zero]);
        let rest = w.does(l, Select, &[negative, minus, product]);
        let positive = w.does(Lane::Mask, Compare(GT), &[x, zero]);
        w.does(l, Select, &[positive, dy, rest])
    }
}

/// Functions of two elements.
mod pair {
    use super::{Lane, Micro::*, Writer};

    /// Functions that are one instruction.
    macro_rules! instructions {
        ($($name:ident $micro:ident;)*) => {$(
            pub(super) fn $name(w: &mut Writer, x: [usize; 2], l: Lane) -> usize {
                w.does(l, $micro, &x)
            }
        )*};
    }

    instructions! {
        add Add;
        sub Sub;
        mul Mul;
        div Div;
        maximum Max;
        minimum Min;
        and Both;
        or Either;
        xor Differ;
    }

    pub(super) fn copysign(w: &mut Writer, [a, b]: [usize; 2], l: Lane) -> usize {
        let (sign, others) = (w.sign(l, false), w.sign(l, true));
        let (size, sign) = (w.does(l, And, &[a, others]), w.does(l, And, &[b, sign]));
        w.does(l, Or, &[size, sign])
    }
}
