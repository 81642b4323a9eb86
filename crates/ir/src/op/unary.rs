//! Functions of one element: one row each.

use super::{Takes, VjpOperand};

/// Calls a macro with the rows of all unary functions, so that the properties of a function are
/// written once. Other crates expand them too: a name that has no function there is a compile
/// error.
///
/// - `name`: in texts and messages, and of the functions that compute it.
/// - `ints`: what it does to integers; nothing if it accepts floats only.
/// - `exact`: the value has the dtype of the operand without being rounded to it.
/// - `cost`: approximate cost in additions. What costs 1 is recomputed rather than saved; up to 2
///   is memory-bound.
/// - `native`, `its vjp`: whether fused loops contain its code: for floats of either width (`any`),
///   for `f32` alone, or not (`none`): then they call the kernel.
/// - `domain`: between which arguments it is tested and measured: inside its domain, and away from
///   poles, where a difference quotient says nothing. `bool` if it takes truth values.
/// - `peer`: PyTorch's function, beside which it is measured: that of the same name in `torch`, in
///   `torch.special` (`sp`) or in `torch.nn.functional` (`F`), an expression of `x`, or `none`.
/// - `kernel`: a formula; or where the function of one element is: `math`, one in `simd/math32.rs`
///   and one in `simd/math64.rs`; `trig`, these for arguments that are not huge; `special`, one in
///   `special/` for both.
/// - `cuda`: the same in CUDA C: the function `tanhf` or `tanh` of CUDA (`[tanh]`); or statements,
///   or an expression of `x`, for `T` one of `float` and `double`. `f64`: computed in `double` for
///   both. `quick`: results of 8 or 11 bits are computed by other code, or by the same with the
///   `l_…` of what it calls. `special`: by the function `s_…` in `special.cu`, where its
///   polynomials are. A row may call `u_…` of the rows above.
/// - `vjp`: the value that the kernel of `dy · f'(x)` reads, what it costs, and its formula or its
///   function in `math32` and `math64`. Nothing if there is none: a fused derivative is worthwhile
///   if it replaces more than one pass over memory.
/// - `its cuda`: the same in CUDA C.
#[doc(hidden)]
#[macro_export]
macro_rules! unary_rows {
    ($then:ident) => {
        $then! {
            //       name          value                    ints     exact  cost native its vjp domain      peer  kernel, cuda, vjp, its cuda
            Neg      neg           "−x"                     [Neg]    rounds 1    any    none    [-3.0 3.0]  torch (|x| -x) ["-x"] [] [];
            Abs      abs           "|x|"                    [Abs]    rounds 1    any    any     [-3.0 3.0]  torch (|x| x.abs()) [fabs]
                     [X 3 |x, dy| if x > 0.0 { dy } else if x < 0.0 { -dy } else { x * dy }] ["x > 0 ? dy : x < 0 ? -dy : x * dy"];
            Sign     sign          "−1, 0 or 1"             [Sign]   exact  1    any    none    [-3.0 3.0]  torch
                     (|x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x }) ["x > 0 ? (T)1 : x < 0 ? (T)-1 : x"] [] [];
            Floor    floor         "⌊x⌋"                    [Same]   exact  1    any    none    [-9.0 9.0]  torch (|x| x.floor()) [floor] [] [];
            Ceil     ceil          "⌈x⌉"                    [Same]   exact  1    any    none    [-9.0 9.0]  torch (|x| x.ceil()) [ceil] [] [];
            Round    round         "to the nearest integer" [Same]   exact  1    any    none    [-9.0 9.0]  torch (|x| x.round_ties_even()) [rint] [] [];
            Trunc    trunc         "the integer part"       [Same]   exact  1    any    none    [-9.0 9.0]  torch (|x| x.trunc()) [trunc] [] [];
            Not      not           "¬x"                     [Not]    rounds 1    any    none    [bool]      "torch.logical_not(x)"
                     (|x| if x == 0.0 { 1.0 } else { 0.0 }) ["x == 0 ? (T)1 : (T)0"] [] [];
            Square   square        "x²"                     [Square] rounds 1    any    any     [-3.0 3.0]  torch (|x| x * x) ["x * x"]
                     [X 3 |x, dy| 2.0 * x * dy] ["(T)2 * x * dy"];
            Sqrt     sqrt          "√x"                     []       rounds 2    any    any     [0.1 9.0]   torch (|x| x.sqrt()) [sqrt]
                     [Y 3 |y, dy| 0.5 * dy / y] ["(T)0.5 * dy / y"];
            Rsqrt    rsqrt         "1/√x"                   []       rounds 2    any    any     [0.1 9.0]   torch (|x| 1.0 / x.sqrt()) ["(T)1 / u_sqrt(x)"]
                     [Y 3 |y, dy| -0.5 * dy * (y * y * y)] ["(T)-0.5 * dy * (y * y * y)"];
            Recip    recip         "1/x"                    []       rounds 2    any    any     [0.3 3.0]   "torch.reciprocal(x)" (|x| 1.0 / x) ["(T)1 / x"]
                     [Y 3 |y, dy| -dy * (y * y)] ["-dy * (y * y)"];
            Exp      exp           "eˣ"                     []       rounds 8    f32    none    [-9.0 9.0]  torch math [exp quick "__expf(x)"] [] [];
            Exp2     exp2          "2ˣ"                     []       rounds 8    none   none    [-9.0 9.0]  torch math [exp2] [] [];
            Expm1    expm1         "eˣ − 1"                 []       rounds 16   none   none    [-3.0 3.0]  torch math [expm1] [] [];
            Log      log           "ln x"                   []       rounds 8    f32    any     [0.1 9.0]   torch math [log]
                     [X 3 |x, dy| dy / x] ["dy / x"];
            Log2     log2          "log₂ x"                 []       rounds 8    none   none    [0.1 9.0]   torch math [log2] [] [];
            Log10    log10         "log₁₀ x"                []       rounds 16   none   none    [0.1 9.0]   torch math [log10] [] [];
            Log1p    log1p         "ln(1 + x)"              []       rounds 16   none   none    [-0.8 9.0]  torch math [log1p] [] [];
            Sin      sin           "sin x"                  []       rounds 16   none   none    [-9.0 9.0]  torch trig [sin]
                     [X 10 trig] ["dy * u_cos(x)"];
            Cos      cos           "cos x"                  []       rounds 16   none   none    [-9.0 9.0]  torch trig [cos]
                     [X 10 trig] ["-dy * u_sin(x)"];
            Tan      tan           "tan x"                  []       rounds 16   none   none    [-1.3 1.3]  torch trig [tan] [] [];
            Asin     asin          "arcsin x"               []       rounds 16   none   none    [-0.9 0.9]  torch math [asin] [] [];
            Acos     acos          "arccos x"               []       rounds 16   none   none    [-0.9 0.9]  torch math [acos] [] [];
            Atan     atan          "arctan x"               []       rounds 16   none   none    [-9.0 9.0]  torch math [atan] [] [];
            Sinh     sinh          "sinh x"                 []       rounds 16   none   none    [-9.0 9.0]  torch math [sinh] [] [];
            Cosh     cosh          "cosh x"                 []       rounds 16   none   none    [-9.0 9.0]  torch math [cosh] [] [];
            Tanh     tanh          "tanh x"                 []       rounds 8    f32    any     [-9.0 9.0]  torch math [tanh]
                     [Y 3 |y, dy| dy * (1.0 - y * y)] ["dy * ((T)1 - y * y)"];
            Asinh    asinh         "arsinh x"               []       rounds 16   none   none    [-9.0 9.0]  torch math [asinh] [] [];
            Acosh    acosh         "arcosh x"               []       rounds 16   none   none    [1.1 9.0]   torch math [acosh] [] [];
            Atanh    atanh         "artanh x"               []       rounds 16   none   none    [-0.9 0.9]  torch math [atanh] [] [];
            Erf      erf           "erf x"                  []       rounds 8    f32    f32     [-3.0 3.0]  torch math [erf]
                     [X 10 erf_vjp] ["dy * ((T)1.12837916709551257390 * u_exp(-x * x))"];
            Erfc     erfc          "1 − erf x"              []       rounds 16   none   none    [-3.0 3.0]  torch math [erfc] [] [];
            Erfcx    erfcx         "exp(x²)·erfc x"         []       rounds 100  none   none    [-3.0 3.0]  sp    special [f64 "erfcx(x)"] [] [];
            Erfinv   erfinv        "the y with erf y = x"   []       rounds 100  none   none    [-0.9 0.9]  torch special [f64 "erfinv(x)"] [] [];
            LogNdtr  log_ndtr      "ln Φ(x)"                []       rounds 100  none   none    [-9.0 9.0]  sp
                     special [f64 "double s = 0.5 * erfcx(fabs(x) * 0.70710678118654752440), t = fmin(x, 40.0); \
                       return x < 0.0 ? log(s) - 0.5 * x * x : log1p(-s * exp(-0.5 * t * t));"] [] [];
            Ndtri    ndtri         "the y with Φ(y) = x"    []       rounds 100  none   none    [0.02 0.98] sp
                     special [f64 "x < 0.0 || x > 1.0 ? NOT_A_NUMBER : normcdfinv(x)"] [] [];
            Lgamma   lgamma        "ln |Γ(x)|"              []       rounds 100  none   none    [0.3 9.0]   torch special [special] [] [];
            Digamma  digamma       "Γ′(x)/Γ(x)"             []       rounds 100  none   none    [0.3 9.0]   torch special [special] [] [];
            I0       i0            "I₀(x), of Bessel"       []       rounds 100  none   none    [-9.0 9.0]  torch special [special] [] [];
            I0e      i0e           "e^(−|x|)·I₀(x)"         []       rounds 100  none   none    [-9.0 9.0]  sp    special [special] [] [];
            I1       i1            "I₁(x), of Bessel"       []       rounds 100  none   none    [-9.0 9.0]  sp    special [special] [] [];
            I1e      i1e           "e^(−|x|)·I₁(x)"         []       rounds 100  none   none    [-9.0 9.0]  sp    special [special] [] [];
            Sigmoid  sigmoid       "1/(1 + e⁻ˣ)"            []       rounds 8    f32    any     [-9.0 9.0]  torch
                     math ["T e = u_exp(-u_abs(x)), r = u_inverse((T)1 + e); return x < 0 ? e * r : r;" quick]
                     [Y 3 |y, dy| dy * (y * (1.0 - y))] ["dy * (y * ((T)1 - y))"];
            Relu     relu          "max(x, 0)"              [Relu]   exact  1    any    any     [-3.0 3.0]  torch
                     (|x| if x <= 0.0 { 0.0 } else { x }) ["x <= 0 ? (T)0 : x"]
                     [Y 3 |y, dy| if y <= 0.0 { 0.0 } else { dy }] ["y <= 0 ? (T)0 : dy"];
            Gelu     gelu          "x·Φ(x)"                 []       rounds 8    f32    f32     [-4.0 4.0]  F
                     math ["bounded(x, (T)-100, (T)INF) * ((T)0.5 * u_erfc(x * (T)-0.70710678118654752440))"]
                     [X 10 gelu_vjp] ["T h = bounded(x, (T)-100, (T)100); \
                       return dy * (h * (T)0.3989422804014327 * u_exp((T)-0.5 * x * x) + (T)0.5 * u_erfc(x * (T)-0.70710678118654752440));"];
            GeluTanh gelu_tanh     "x·Φ(x), Φ by tanh"      []       rounds 8    f32    f32     [-4.0 4.0]  "F.gelu(x, approximate='tanh')"
                     math ["bounded(x, (T)-1000, (T)INF) * u_sigmoid(x * ((T)0.071354816272600689 * (x * x) + (T)1.595769121605730711759784))" quick]
                     [X 10 gelu_tanh_vjp] ["x = bounded(x, (T)-100, (T)100); \
                       T u = x * ((T)0.071354816272600689 * (x * x) + (T)1.595769121605730711759784); \
                       T du = (T)(3 * 0.071354816272600689) * (x * x) + (T)1.595769121605730711759784; \
                       T e = u_exp(-u_abs(u)), r = u_inverse((T)1 + e), l = e * r, s = u < 0 ? l : r; \
                       return dy * (x * du * s * (u > 0 ? l : r) + s);" quick];
            Silu     silu          "x·sigmoid(x)"           []       rounds 8    f32    f32     [-9.0 9.0]  F
                     math ["bounded(x, (T)-1000, (T)INF) * u_sigmoid(x)" quick]
                     [X 10 silu_vjp] ["x = bounded(x, (T)-1000, (T)1000); \
                       T e = u_exp(-u_abs(x)), r = u_inverse((T)1 + e), l = e * r; \
                       return dy * ((x < 0 ? l : r) * (x * (x > 0 ? l : r) + (T)1));" quick];
            Stop     stop_gradient "x, not differentiated"  []       exact  1    any    none    [-3.0 3.0]  none  (|x| x) ["x"] [] [];
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
    ([$kept:ident $cost:literal $($function:tt)*]) => {
        Some((VjpOperand::$kept, $cost))
    };
}

/// The column `domain`.
macro_rules! domain {
    ([bool]) => {
        (0.0, 1.0)
    };
    ([$low:literal $high:literal]) => {
        ($low, $high)
    };
}

/// The type, its list and its columns.
macro_rules! functions {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
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

            /// An interval inside of its domain, away from poles: what it is tested and measured
            /// with.
            ///
            /// ```
            /// use pullback_ir::Unary;
            /// assert_eq!(Unary::Asin.domain(), (-0.9, 0.9));
            /// ```
            pub const fn domain(self) -> (f64, f64) {
                match self { $(Unary::$f => domain!($domain)),* }
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
