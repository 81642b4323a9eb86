//! Functions of two elements: one row each.

use super::unary::is_exact;
use crate::DType;

/// Calls a macro with the rows of all binary functions; the columns are those of
/// [`unary_rows`](crate::unary_rows).
///
/// - `takes`: `numbers` are all dtypes but `bool`, `bits` all but floats, `integers` all but both.
/// - `native`: for floats of either width (`any`), for booleans (`truth`), or not (`none`).
/// - `cuda`: its code in CUDA C for floats, of `a` and `b`; nothing if it takes integers only.
#[doc(hidden)]
#[macro_export]
macro_rules! binary_rows {
    ($then:ident) => {
        $then! {
            //         name        value                              takes    exact  cost native cuda
            Add        add         "a + b"                            numbers  rounds 1    any    ["a + b"];
            Sub        sub         "a − b"                            numbers  rounds 1    any    ["a - b"];
            Mul        mul         "a·b"                              numbers  rounds 1    any    ["a * b"];
            Div        div         "a/b"                              floats   rounds 2    any    ["a / b"];
            Remainder  remainder   "a − b·⌊a/b⌋, as Python's %"       numbers  rounds 16   none
                       ["T r = remainder_of(a, b); return r == 0 ? with_sign(r, b) : (r < 0) != (b < 0) ? r + b : r;"];
            Fmod       fmod        "a − b·trunc(a/b), as C's fmod"    numbers  rounds 16   none   [fmod];
            FloorDiv   floor_div   "⌊a/b⌋"                            numbers  rounds 16   none
                       ["T r = remainder_of(a, b), q = (a - r) / b; \
                        q = r != 0 && (r < 0) != (b < 0) ? q - (T)1 : q; \
                        T down = u_floor(q); q = q - down > (T)0.5 ? down + (T)1 : down; \
                        return b == 0 ? a / b : q == 0 ? with_sign((T)0, a / b) : q;"];
            Pow        pow         "aᵇ"                               numbers  rounds 20   none   [pow];
            Atan2      atan2       "the angle of the point (b, a)"    floats   rounds 20   none   [atan2];
            Copysign   copysign    "|a| with the sign of b"           floats   rounds 1    any    [copysign];
            Zeta       zeta        "ζ(a, b) of Hurwitz"               floats   rounds 200  none   [special];
            Gammainc   gammainc    "P(a, b), incomplete gamma"        floats   rounds 200  none   [special];
            Gammaincc  gammaincc   "1 − P(a, b)"                      floats   rounds 200  none   [special];
            Maximum    maximum     "the larger; NaN if either is"     numbers  exact  1    any    ["a != a || a > b ? a : b"];
            Minimum    minimum     "the smaller; NaN if either is"    numbers  exact  1    any    ["a != a || a < b ? a : b"];
            And        and         "both; bitwise on integers"        bits     exact  1    truth  ["a != 0 && b != 0 ? (T)1 : (T)0"];
            Or         or          "either; bitwise on integers"      bits     exact  1    truth  ["a != 0 || b != 0 ? (T)1 : (T)0"];
            Xor        xor         "not the same; bitwise"            bits     exact  1    truth  ["(a != 0) != (b != 0) ? (T)1 : (T)0"];
            ShiftLeft  shift_left  "a·2ᵇ; 0 unless 0 ≤ b < 64"        integers exact  1    none   [];
            ShiftRight shift_right "⌊a/2ᵇ⌋; its sign unless 0 ≤ b < 64" integers exact  1    none   [];
            Gcd        gcd         "the greatest common divisor"      integers exact  60   none   [];
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
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident
        $cuda:tt;
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
