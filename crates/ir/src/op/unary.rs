//! Functions of one element: one row each.

use super::{Takes, VjpOperand};

/// Calls a macro with the rows of all unary functions, so that the properties of a function are
/// written once. Other crates expand them too: a name that has no function there is a compile
/// error.
///
/// - `name`: in texts and messages, and of the functions that compute it.
/// - `kernel`: where the function of one element is: `math`, one in `simd/math32.rs` and one in
///   `simd/math64.rs`; `trig`, these for arguments that are not huge; `special`, one in `special/`
///   for both; `formula`, a formula in `pointwise/float.rs` for both.
/// - `ints`: what it does to integers; nothing if it accepts floats only.
/// - `exact`: the value has the dtype of the operand without being rounded to it.
/// - `cost`: approximate cost in additions. What costs 1 is recomputed rather than saved; up to 2
///   is memory-bound.
/// - `vjp`: the value that the kernel of `dy · f'(x)` reads, what it costs, and its function in
///   `math32` and `math64` if it is not a formula in `float.rs`. Nothing if there is none: a fused
///   derivative is worthwhile if it replaces more than one pass over memory.
/// - `native`, `its vjp`: whether fused loops contain its code: for floats of either width (`any`),
///   for `f32` alone, or not (`none`): then they call the kernel.
#[doc(hidden)]
#[macro_export]
macro_rules! unary_rows {
    ($then:ident) => {
        $then! {
            //       name          value                    kernel  ints     exact  cost vjp                  native its vjp
            Neg      neg           "−x"                     formula [Neg]    rounds 1   []                   any  none;
            Abs      abs           "|x|"                    formula [Abs]    rounds 1   [X 3]                any  any;
            Sign     sign          "−1, 0 or 1"             formula [Sign]   exact  1   []                   any  none;
            Floor    floor         "⌊x⌋"                    formula [Same]   exact  1   []                   any  none;
            Ceil     ceil          "⌈x⌉"                    formula [Same]   exact  1   []                   any  none;
            Round    round         "to the nearest integer" formula [Same]   exact  1   []                   any  none;
            Trunc    trunc         "the integer part"       formula [Same]   exact  1   []                   any  none;
            Not      not           "¬x"                     formula [Not]    rounds 1   []                   any  none;
            Square   square        "x²"                     formula [Square] rounds 1   [X 3]                any  any;
            Sqrt     sqrt          "√x"                     formula []       rounds 2   [Y 3]                any  any;
            Rsqrt    rsqrt         "1/√x"                   formula []       rounds 2   [Y 3]                any  any;
            Recip    recip         "1/x"                    formula []       rounds 2   [Y 3]                any  any;
            Exp      exp           "eˣ"                     math    []       rounds 8   []                   f32  none;
            Exp2     exp2          "2ˣ"                     math    []       rounds 8   []                   none none;
            Expm1    expm1         "eˣ − 1"                 math    []       rounds 16  []                   none none;
            Log      log           "ln x"                   math    []       rounds 8   [X 3]                f32  any;
            Log2     log2          "log₂ x"                 math    []       rounds 8   []                   none none;
            Log10    log10         "log₁₀ x"                math    []       rounds 16  []                   none none;
            Log1p    log1p         "ln(1 + x)"              math    []       rounds 16  []                   none none;
            Sin      sin           "sin x"                  trig    []       rounds 16  [X 10]               none none;
            Cos      cos           "cos x"                  trig    []       rounds 16  [X 10]               none none;
            Tan      tan           "tan x"                  trig    []       rounds 16  []                   none none;
            Asin     asin          "arcsin x"               math    []       rounds 16  []                   none none;
            Acos     acos          "arccos x"               math    []       rounds 16  []                   none none;
            Atan     atan          "arctan x"               math    []       rounds 16  []                   none none;
            Sinh     sinh          "sinh x"                 math    []       rounds 16  []                   none none;
            Cosh     cosh          "cosh x"                 math    []       rounds 16  []                   none none;
            Tanh     tanh          "tanh x"                 math    []       rounds 8   [Y 3]                f32  any;
            Asinh    asinh         "arsinh x"               math    []       rounds 16  []                   none none;
            Acosh    acosh         "arcosh x"               math    []       rounds 16  []                   none none;
            Atanh    atanh         "artanh x"               math    []       rounds 16  []                   none none;
            Erf      erf           "erf x"                  math    []       rounds 8   [X 10 erf_vjp]       f32  f32;
            Erfc     erfc          "1 − erf x"              math    []       rounds 16  []                   none none;
            Erfcx    erfcx         "exp(x²)·erfc x"         special []       rounds 100 []                   none none;
            Erfinv   erfinv        "the y with erf y = x"   special []       rounds 100 []                   none none;
            LogNdtr  log_ndtr      "ln Φ(x)"                special []       rounds 100 []                   none none;
            Ndtri    ndtri         "the y with Φ(y) = x"    special []       rounds 100 []                   none none;
            Lgamma   lgamma        "ln |Γ(x)|"              special []       rounds 100 []                   none none;
            Digamma  digamma       "Γ′(x)/Γ(x)"             special []       rounds 100 []                   none none;
            I0       i0            "I₀(x), of Bessel"       special []       rounds 100 []                   none none;
            I0e      i0e           "e^(−|x|)·I₀(x)"         special []       rounds 100 []                   none none;
            I1       i1            "I₁(x), of Bessel"       special []       rounds 100 []                   none none;
            I1e      i1e           "e^(−|x|)·I₁(x)"         special []       rounds 100 []                   none none;
            Sigmoid  sigmoid       "1/(1 + e⁻ˣ)"            math    []       rounds 8   [Y 3]                f32  any;
            Relu     relu          "max(x, 0)"              formula [Relu]   exact  1   [Y 3]                any  any;
            Gelu     gelu          "x·Φ(x)"                 math    []       rounds 8   [X 10 gelu_vjp]      f32  f32;
            GeluTanh gelu_tanh     "x·Φ(x), Φ by tanh"      math    []       rounds 8   [X 10 gelu_tanh_vjp] f32  f32;
            Silu     silu          "x·sigmoid(x)"           math    []       rounds 8   [X 10 silu_vjp]      f32  f32;
            Stop     stop_gradient "x, not differentiated"  formula []       exact  1   []                   any  none;
        }
    };
}

/// The column `ints`.
macro_rules! ints {
    ([]) => {
        None
    };
    ([$function:ident]) => {
        Some(Ints::$function)
    };
}

/// The words of the column `exact`.
macro_rules! is_exact {
    (exact) => {
        true
    };
    (rounds) => {
        false
    };
}
pub(super) use is_exact;

/// A fused derivative: the value that it reads, and its cost.
macro_rules! derivative {
    ([]) => {
        None
    };
    ([$kept:ident $cost:literal $($function:ident)?]) => {
        Some((VjpOperand::$kept, $cost))
    };
}

/// The type, its list and its columns.
macro_rules! functions {
    ($(
        $f:ident $name:ident $value:literal $kernel:ident $ints:tt $exact:ident $cost:literal $vjp:tt
        $native:ident $native_vjp:ident;
    )*) => {
        /// Functions of one element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Unary {
            $(#[doc = $value] $f,)*
        }

        impl Unary {
            /// Every unary function.
            pub const ALL: &[Unary] = &[$(Unary::$f),*];

            /// The name of the function: `tanh`.
            pub const fn name(self) -> &'static str {
                match self { $(Unary::$f => stringify!($name)),* }
            }

            /// The name of its fused derivative, [`Op::UnaryVjp`](crate::Op::UnaryVjp): `vjp.tanh`.
            pub const fn vjp_name(self) -> &'static str {
                match self { $(Unary::$f => concat!("vjp.", stringify!($name))),* }
            }

            /// The value as a formula: `x²`.
            pub const fn formula(self) -> &'static str {
                match self { $(Unary::$f => $value),* }
            }

            /// What it does to integers, if it takes them.
            pub const fn ints(self) -> Option<Ints> {
                match self { $(Unary::$f => ints!($ints)),* }
            }

            /// Whether values have the dtype of the operand without rounding.
            pub const fn is_exact(self) -> bool {
                match self { $(Unary::$f => is_exact!($exact)),* }
            }

            /// Approximate cost in additions.
            pub const fn cost(self) -> usize {
                match self { $(Unary::$f => $cost),* }
            }

            /// The value that the fused derivative reads, and the cost of that.
            const fn derivative(self) -> Option<(VjpOperand, usize)> {
                match self { $(Unary::$f => derivative!($vjp)),* }
            }
        }
    };
}

unary_rows!(functions);

/// What functions do to integers, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ints {
    /// The identity: an integer is rounded already.
    Same,
    Neg,
    Abs,
    Sign,
    /// All bits; on `bool` the negation.
    Not,
    Square,
    Relu,
}

impl Unary {
    /// Which dtypes it takes.
    pub const fn takes(self) -> Takes {
        match self.ints() {
            None => Takes::Floats,
            Some(Ints::Not) => Takes::Bits,
            Some(Ints::Same | Ints::Neg | Ints::Abs | Ints::Sign) => Takes::Numbers,
            Some(Ints::Square | Ints::Relu) => Takes::Numbers,
        }
    }

    /// Whether integers are accepted as they are (the others take floats only).
    pub const fn takes_ints(self) -> bool {
        self.ints().is_some()
    }

    /// Whether [`Op::UnaryVjp`](crate::Op::UnaryVjp) has a kernel for this function, and from which
    /// value.
    pub const fn fused_vjp(self) -> Option<VjpOperand> {
        match self.derivative() {
            Some((kept, _)) => Some(kept),
            None => None,
        }
    }

    /// The cost of the fused derivative; zero if there is none.
    pub const fn vjp_cost(self) -> usize {
        match self.derivative() {
            Some((_, cost)) => cost,
            None => 0,
        }
    }
}
