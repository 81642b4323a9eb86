//! Arguments as PyTorch takes them: by position or by name, with defaults.

use pullback::{Reduction, Tensor};

/// One argument.
#[derive(Clone)]
pub enum Arg {
    Tensor(Tensor),
    /// Complex numbers, as pairs on a last axis of 2.
    Complex(Tensor),
    Float(f64),
    Int(i64),
    Bool(bool),
    Text(String),
    Slice(Option<isize>, Option<isize>, Option<isize>),
    List(Vec<Arg>),
    Null,
}

/// The arguments of one call.
pub struct Args {
    pub positional: Vec<Arg>,
    pub named: Vec<(String, Arg)>,
}

impl Arg {
    /// As a tensor: numbers become 0-d ones.
    pub fn tensor(&self) -> Tensor {
        match self {
            Arg::Tensor(x) | Arg::Complex(x) => x.clone(),
            Arg::Float(x) => Tensor::from(*x),
            Arg::Int(n) => Tensor::from(*n),
            Arg::Bool(b) => Tensor::from(*b),
            Arg::Text(_) | Arg::Slice(..) | Arg::List(_) | Arg::Null => {
                panic!("an argument should be a tensor")
            }
        }
    }

    pub fn int(&self) -> isize {
        match self {
            Arg::Int(n) => *n as isize,
            Arg::Bool(b) => *b as isize,
            Arg::Float(x) if x.fract() == 0.0 => *x as isize,
            Arg::Tensor(x) => x.cast(pullback::DType::I64).item::<i64>() as isize,
            Arg::Float(_)
            | Arg::Complex(_)
            | Arg::Text(_)
            | Arg::Slice(..)
            | Arg::List(_)
            | Arg::Null => {
                panic!("an argument should be an integer")
            }
        }
    }

    pub fn float(&self) -> f64 {
        match self {
            Arg::Float(x) => *x,
            Arg::Int(n) => *n as f64,
            Arg::Bool(b) => f64::from(u8::from(*b)),
            Arg::Tensor(x) => x.cast(pullback::DType::F64).item::<f64>(),
            Arg::Complex(_) | Arg::Text(_) | Arg::Slice(..) | Arg::List(_) | Arg::Null => {
                panic!("an argument should be a number")
            }
        }
    }

    /// One integer or a list of them.
    pub fn ints(&self) -> Vec<isize> {
        match self {
            Arg::List(list) => list.iter().map(Arg::int).collect(),
            one => vec![one.int()],
        }
    }

    pub fn tensors(&self) -> Vec<Tensor> {
        match self {
            Arg::List(list) => list.iter().map(Arg::tensor).collect(),
            one => vec![one.tensor()],
        }
    }
}

impl Args {
    /// The argument at a position or under a name (`dim|axis`: either); `None` if it is absent or
    /// null.
    pub fn get(&self, i: usize, names: &str) -> Option<&Arg> {
        let named = || {
            self.named.iter().find(|(k, _)| names.split('|').any(|name| name == k)).map(|(_, v)| v)
        };
        self.positional.get(i).or_else(named).filter(|a| !matches!(a, Arg::Null))
    }

    fn need(&self, i: usize, names: &str) -> &Arg {
        self.get(i, names).unwrap_or_else(|| panic!("argument {i} (`{names}`) is missing"))
    }

    /// Whether an argument holds complex numbers.
    pub fn has_complex(&self) -> bool {
        fn complex(arg: &Arg) -> bool {
            match arg {
                Arg::Complex(_) => true,
                Arg::List(list) => list.iter().any(complex),
                _ => false,
            }
        }
        self.positional.iter().any(complex) || self.named.iter().any(|(_, arg)| complex(arg))
    }

    /// The first argument, a tensor.
    pub fn x(&self) -> Tensor {
        self.tensor(0, "input|self|x")
    }

    pub fn tensor(&self, i: usize, names: &str) -> Tensor {
        self.need(i, names).tensor()
    }

    pub fn maybe_tensor(&self, i: usize, names: &str) -> Option<Tensor> {
        self.get(i, names).map(Arg::tensor)
    }

    pub fn tensors(&self, i: usize, names: &str) -> Vec<Tensor> {
        self.need(i, names).tensors()
    }

    /// All positional tensors, given one by one or as a list.
    pub fn every_tensor(&self) -> Vec<Tensor> {
        self.positional
            .iter()
            .filter(|a| matches!(a, Arg::Tensor(_) | Arg::List(_)))
            .flat_map(Arg::tensors)
            .collect()
    }

    pub fn int(&self, i: usize, names: &str) -> isize {
        self.need(i, names).int()
    }

    pub fn int_or(&self, i: usize, names: &str, default: isize) -> isize {
        self.get(i, names).map_or(default, Arg::int)
    }

    pub fn float_or(&self, i: usize, names: &str, default: f64) -> f64 {
        self.get(i, names).map_or(default, Arg::float)
    }

    pub fn float(&self, i: usize, names: &str) -> f64 {
        self.need(i, names).float()
    }

    pub fn flag(&self, i: usize, names: &str, default: bool) -> bool {
        self.get(i, names).map_or(default, |a| a.int() != 0)
    }

    pub fn text(&self, i: usize, names: &str) -> Option<&str> {
        match self.get(i, names) {
            Some(Arg::Text(s)) => Some(s),
            _ => None,
        }
    }

    pub fn ints(&self, i: usize, names: &str) -> Vec<isize> {
        self.need(i, names).ints()
    }

    pub fn maybe_ints(&self, i: usize, names: &str) -> Option<Vec<isize>> {
        self.get(i, names).map(Arg::ints)
    }

    /// A list of integers, or all the integers from a position on: `x.permute(0, 1)` and
    /// `x.permute([0, 1])`.
    pub fn rest(&self, i: usize, names: &str) -> Vec<isize> {
        match self.positional.get(i) {
            Some(Arg::Int(_)) => self.positional[i..].iter().map(Arg::int).collect(),
            _ => self.ints(i, names),
        }
    }

    /// `reduction=`, with PyTorch's default.
    pub fn reduction(&self, i: usize) -> Reduction {
        match self.text(i, "reduction").unwrap_or("mean") {
            "mean" => Reduction::Mean,
            "sum" => Reduction::Sum,
            "none" => Reduction::None,
            other => panic!("`{other}` is no reduction"),
        }
    }
}
