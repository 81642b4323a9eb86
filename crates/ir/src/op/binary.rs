//! Functions of two elements: one row each.

use super::unary::is_exact;
use crate::DType;

/// Calls a macro with the rows of all binary functions; the columns are those of
/// [`unary_rows`](crate::unary_rows).
///
/// - `takes`: `numbers` are all dtypes but `bool`, `bits` all but floats, `integers` all but both.
/// - `native`: for floats of either width (`any`), for booleans (`truth`), or not (`none`).
#[doc(hidden)]
#[macro_export]
macro_rules! binary_rows {
    ($then:ident) => {
        $then! {
            //        name      value                           takes   exact  cost native
            Add       add       "a + b"                         numbers rounds 1   any;
            Sub       sub       "a − b"                         numbers rounds 1   any;
            Mul       mul       "a·b"                           numbers rounds 1   any;
            Div       div       "a/b"                           floats  rounds 2   any;
            Remainder remainder "a − b·⌊a/b⌋, as Python's %"    numbers rounds 16  none;
            Fmod      fmod      "a − b·trunc(a/b), as C's fmod" numbers rounds 16  none;
            FloorDiv  floor_div "⌊a/b⌋"                         numbers rounds 16  none;
            Pow       pow       "aᵇ"                            numbers rounds 20  none;
            Atan2     atan2     "the angle of the point (b, a)" floats  rounds 20  none;
            Copysign  copysign  "|a| with the sign of b"        floats  rounds 1   any;
            Zeta      zeta      "ζ(a, b) of Hurwitz"            floats  rounds 200 none;
            Gammainc  gammainc  "P(a, b), incomplete gamma"     floats  rounds 200 none;
            Gammaincc gammaincc "1 − P(a, b)"                   floats  rounds 200 none;
            Maximum   maximum   "the larger; NaN if either is"  numbers exact  1   any;
            Minimum   minimum   "the smaller; NaN if either is" numbers exact  1   any;
            And       and       "both; bitwise on integers"     bits    exact  1   truth;
            Or        or        "either; bitwise on integers"   bits    exact  1   truth;
            Xor       xor       "not the same; bitwise"         bits    exact  1   truth;
            ShiftLeft  shift_left  "a·2ᵇ; 0 unless 0 ≤ b < 64"     integers exact 1 none;
            ShiftRight shift_right "⌊a/2ᵇ⌋; its sign unless 0 ≤ b < 64" integers exact 1 none;
            Gcd       gcd       "the greatest common divisor"   integers exact 60  none;
        }
    };
}

/// Which dtypes a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All but `bool`.
    Numbers,
    /// Floats.
    Floats,
    /// All but floats.
    Bits,
    /// All but floats and `bool`.
    Integers,
}

impl Takes {
    /// Whether a dtype is among them.
    pub fn has(self, dtype: DType) -> bool {
        match self {
            Takes::Numbers => dtype != DType::Bool,
            Takes::Floats => dtype.is_float(),
            Takes::Bits => !dtype.is_float(),
            Takes::Integers => !dtype.is_float() && dtype != DType::Bool,
        }
    }
}

/// The words of the column `takes`.
macro_rules! takes {
    (numbers) => {
        Takes::Numbers
    };
    (floats) => {
        Takes::Floats
    };
    (bits) => {
        Takes::Bits
    };
    (integers) => {
        Takes::Integers
    };
}

/// The type, its list and its columns.
macro_rules! functions {
    ($(
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident;
    )*) => {
        /// Functions of two elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Binary {
            $(#[doc = $value] $f,)*
        }

        impl Binary {
            /// Every binary function.
            pub const ALL: &[Binary] = &[$(Binary::$f),*];

            /// The name of the function: `add`.
            pub const fn name(self) -> &'static str {
                match self { $(Binary::$f => stringify!($name)),* }
            }

            /// The value as a formula: `a + b`.
            pub const fn formula(self) -> &'static str {
                match self { $(Binary::$f => $value),* }
            }

            /// Which dtypes it takes.
            pub const fn takes(self) -> Takes {
                match self { $(Binary::$f => takes!($takes)),* }
            }

            /// Whether values have the dtype of the operands without rounding.
            pub const fn is_exact(self) -> bool {
                match self { $(Binary::$f => is_exact!($exact)),* }
            }

            /// Approximate cost in additions.
            pub const fn cost(self) -> usize {
                match self { $(Binary::$f => $cost),* }
            }
        }
    };
}

binary_rows!(functions);
