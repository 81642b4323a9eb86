//! Functions of one and two elements in CUDA C, from the columns `cuda` of their rows
//! ([`unary_rows`], [`binary_rows`]); and what every kernel starts with, which contains them.
//!
//! A function is `u_tanh` (of one element), `v_tanh` (`dy · f'`) or `b_pow` (of two), once for
//! `float` and once for `double`; `l_…` and `lv_…` are those that are quick.

use pullback_ir::{Binary, DType, Ints, Op, Unary, VjpOperand, binary_rows, unary_rows};
use std::fmt::{Display, Formatter, Write};
use std::sync::LazyLock;

/// A function of floats.
struct FloatFunction {
    code: FloatCode,
    /// The code for results of 8 or 11 bits, if there is another.
    quick: Option<&'static str>,
}

/// What a column says.
enum FloatCode {
    /// There is none.
    None,
    /// The function of CUDA: `tanh`, and `tanhf` of a `float`.
    Library(&'static str),
    /// An expression or statements, for `T` either of both.
    Either(&'static str),
    /// The same in `double` for both.
    Double(&'static str),
    /// The function `s_…` of `special.cu`, in `double` for both.
    Special,
}

/// Reads a column.
macro_rules! function {
    ([]) => {
        FloatFunction { code: FloatCode::None, quick: None }
    };
    ([special]) => {
        FloatFunction { code: FloatCode::Special, quick: None }
    };
    ([f64 $text:literal]) => {
        FloatFunction { code: FloatCode::Double($text), quick: None }
    };
    ([$text:literal]) => {
        FloatFunction { code: FloatCode::Either($text), quick: None }
    };
    ([$text:literal quick]) => {
        FloatFunction { code: FloatCode::Either($text), quick: Some($text) }
    };
    ([$name:ident]) => {
        FloatFunction { code: FloatCode::Library(stringify!($name)), quick: None }
    };
    ([$name:ident quick $text:literal]) => {
        FloatFunction { code: FloatCode::Library(stringify!($name)), quick: Some($text) }
    };
}

macro_rules! of_one {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
    )*) => {
        fn unary(f: Unary) -> FloatFunction {
            match f { $(Unary::$f => function!($cuda)),* }
        }

        /// Of `dy · f'`, from the saved value.
        fn vjp(f: Unary) -> FloatFunction {
            match f { $(Unary::$f => function!($cuda_vjp)),* }
        }
    };
}
unary_rows!(of_one);

macro_rules! of_two {
    ($(
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident
        $cuda:tt;
    )*) => {
        fn binary(f: Binary) -> FloatFunction {
            match f { $(Binary::$f => function!($cuda)),* }
        }
    };
}
binary_rows!(of_two);

/// The name and the parameters of a function.
#[derive(Clone, Copy)]
struct FunctionHead<'a> {
    /// `u`, `v` or `b`.
    kind: &'a str,
    name: &'a str,
    parameters: &'a [&'a str],
}

impl FunctionHead<'_> {
    /// The parameters, each after `before`.
    fn list(&self, before: &str) -> String {
        let each: Vec<String> = self.parameters.iter().map(|p| format!("{before}{p}")).collect();
        each.join(", ")
    }

    /// The function for a type, and its body.
    fn define(&self, out: &mut String, prefix: &str, of: &str, body: &str) {
        let (FunctionHead { kind, name, .. }, parameters) = (self, self.list(&format!("{of} ")));
        let _ = writeln!(out, "FN {of} {prefix}{kind}_{name}({parameters}) {{ {body} }}");
    }

    /// The functions of a column that are part of the prelude.
    fn shared(&self, out: &mut String, function: &FloatFunction) {
        match function.code {
            FloatCode::Library(called) => {
                let arguments = self.list("");
                self.define(out, "", "float", &format!("return {called}f({arguments});"));
                self.define(out, "", "double", &format!("return {called}({arguments});"));
            }
            FloatCode::Either(text) => {
                for of in ["float", "double"] {
                    self.define(out, "", of, &format!("typedef {of} T; {}", statements(text)));
                }
            }
            FloatCode::None | FloatCode::Double(_) | FloatCode::Special => {}
        }
        if let Some(text) = function.quick {
            // `l_exp`, `lv_silu`.
            let kind = if self.kind == "u" { "" } else { self.kind };
            let body = format!("typedef float T; {}", statements(text).replace("u_", "l_"));
            FunctionHead { kind, ..*self }.define(out, "l", "float", &body);
        }
    }

    /// The functions of a column that are computed in `double`: only some kernels have them.
    fn special(&self, out: &mut String, function: &FloatFunction) {
        let FunctionHead { kind, name, .. } = self;
        match function.code {
            FloatCode::Double(text) => {
                let body = statements(text);
                let _ = writeln!(out, "SPECIAL s_{name}({}) {{ {body} }}", self.list("double "));
            }
            FloatCode::Special => {}
            FloatCode::None | FloatCode::Library(_) | FloatCode::Either(_) => return,
        }
        let arguments = self.list("(double)");
        self.define(out, "", "float", &format!("return (float)s_{name}({arguments});"));
        self.define(out, "", "double", &format!("return s_{name}({});", self.list("")));
        debug_assert!(*kind != "v", "a derivative is a formula");
    }
}

/// The body of a function: an expression is returned.
fn statements(text: &str) -> String {
    if text.ends_with(';') { text.into() } else { format!("return {text};") }
}

/// Calls `each` with every function, those that others call before these.
fn each(mut each: impl FnMut(FunctionHead, FloatFunction)) {
    for f in Unary::ALL {
        each(FunctionHead { kind: "u", name: f.name(), parameters: &["x"] }, unary(*f));
    }
    for f in Unary::ALL {
        let parameters = match f.fused_vjp() {
            Some(VjpOperand::Y) => &["y", "dy"],
            Some(VjpOperand::X) | None => &["x", "dy"],
        };
        each(FunctionHead { kind: "v", name: f.name(), parameters }, vjp(*f));
    }
    for f in Binary::ALL {
        each(FunctionHead { kind: "b", name: f.name(), parameters: &["a", "b"] }, binary(*f));
    }
}

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut text = include_str!("kernels/prelude.cu").to_string();
    text += "\n// Functions of floats.\n";
    each(|head, function| head.shared(&mut text, &function));
    text + include_str!("kernels/integers.cu") + include_str!("kernels/threads.cu")
});

static SPECIAL: LazyLock<String> = LazyLock::new(|| {
    let mut text = include_str!("kernels/special.cu").to_string();
    each(|head, function| head.special(&mut text, &function));
    text
});

/// What every kernel starts with.
pub(crate) const PRELUDE: Prelude = Prelude;
pub(crate) struct Prelude;

impl Display for Prelude {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(&TEXT)
    }
}

/// What kernels need that call one of these ops, after the prelude.
pub(crate) fn special<'a>(mut ops: impl Iterator<Item = &'a Op>) -> &'static str {
    let is_special = |op: &Op| {
        let function = match op {
            Op::Unary(f) => unary(*f),
            Op::Binary(f) => binary(*f),
            _ => return false,
        };
        matches!(function.code, FloatCode::Double(_) | FloatCode::Special)
    };
    if ops.any(is_special) { &SPECIAL } else { "" }
}

/// Whether results of a dtype are computed by the quick function.
fn is_quick(function: &FloatFunction, to: DType) -> bool {
    function.quick.is_some() && matches!(to, DType::BF16 | DType::F16)
}

/// The function in CUDA C that computes one of an element, from a dtype.
pub(crate) fn name_of(f: Unary, from: DType, to: DType) -> String {
    match f.ints() {
        Some(ints) if !from.is_float() => format!("u_{}", of_integers(ints)),
        _ => format!("{}_{}", if is_quick(&unary(f), to) { "l" } else { "u" }, f.name()),
    }
}

/// The function that computes `dy · f'`.
pub(crate) fn name_of_vjp(f: Unary, to: DType) -> String {
    format!("{}_{}", if is_quick(&vjp(f), to) { "lv" } else { "v" }, f.name())
}

/// The function of `integers.cu`.
fn of_integers(ints: Ints) -> &'static str {
    match ints {
        Ints::Same => "same",
        Ints::Neg => "neg",
        Ints::Abs => "abs",
        Ints::Sign => "sign",
        Ints::Not => "not",
        Ints::Square => "square",
        Ints::Relu => "relu",
    }
}
