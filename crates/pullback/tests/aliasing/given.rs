//! Operands that are remembered, and the ways in which a call is made.

use pullback::linalg::Lstsq;
use pullback::{DType, Key, Tensor, Unique, jvp};
use std::cell::RefCell;

/// Hands out operands and remembers them.
pub struct Given {
    one: Tensor,
    zero: Tensor,
    yes: Tensor,
    all: RefCell<Vec<Tensor>>,
}

impl Given {
    /// Every operand is computed from these, so it is plain, tracked, dual or traced as they are.
    pub fn from(one: &Tensor, zero: &Tensor, yes: &Tensor) -> Given {
        let all = RefCell::default();
        Given { one: one.clone(), zero: zero.clone(), yes: yes.clone(), all }
    }

    pub fn operands(&self) -> Vec<Tensor> {
        self.all.borrow().clone()
    }

    fn note(&self, x: Tensor) -> Tensor {
        self.all.borrow_mut().push(x.clone());
        x
    }

    /// Floats between 0 and 1.
    pub fn f(&self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 97 + 1) as f64 / 100.0).collect();
        self.note(Tensor::from_vec(values, shape) * &self.one)
    }

    /// Whole numbers from 1 on.
    pub fn i(&self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        self.ints(&(1..=n as i64).collect::<Vec<_>>()).reshape(shape)
    }

    /// These numbers.
    pub fn ints(&self, values: &[i64]) -> Tensor {
        self.note(Tensor::from(values) + &self.zero)
    }

    /// All true.
    pub fn b(&self, shape: &[usize]) -> Tensor {
        self.note(Tensor::ones_with(shape, DType::Bool).logical_and(&self.yes))
    }

    /// A symmetric, positive definite matrix.
    pub fn spd(&self, n: usize) -> Tensor {
        self.note((Tensor::eye_with(n, n, DType::F64) * 3.0 + 0.5) * &self.one)
    }

    pub fn key(&self) -> Key {
        Key::new(7)
    }
}

/// What a call gives, as a list.
pub trait Results {
    fn list(self) -> Vec<Tensor>;
}

impl Results for Tensor {
    fn list(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Results for Vec<Tensor> {
    fn list(self) -> Vec<Tensor> {
        self
    }
}

impl Results for (Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl Results for (Tensor, Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

impl Results for Unique {
    fn list(self) -> Vec<Tensor> {
        vec![self.values, self.inverse, self.counts]
    }
}

impl Results for Lstsq {
    fn list(self) -> Vec<Tensor> {
        vec![self.solution, self.residuals, self.rank, self.singular_values]
    }
}

pub type Call = Box<dyn Fn(&Given) -> Vec<Tensor>>;

/// A function by its name in `docs/functions.md`, with calls of it: ordinary ones, and those that
/// have nothing to do.
pub type Row = (&'static str, Vec<Call>);

pub fn call<R: Results>(f: impl Fn(&Given) -> R + 'static) -> Call {
    Box::new(move |g| f(g).list())
}

/// `"name": call, call;`
#[macro_export]
macro_rules! rows {
    ($($name:literal: $($call:expr),+;)*) => {
        pub fn rows() -> Vec<$crate::given::Row> {
            vec![$(($name, vec![$($crate::given::call($call)),+])),*]
        }
    };
}

/// In which way the operands are there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Plain,
    Tracked,
    Dual,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Plain, Way::Tracked, Way::Dual];

    /// Runs `f` with operands of this kind.
    pub fn run<R>(self, f: impl FnOnce(&Given) -> R) -> R {
        let (one, zero, yes) = (Tensor::from(1.0), Tensor::from(0i64), Tensor::from(true));
        match self {
            Way::Plain => f(&Given::from(&one, &zero, &yes)),
            Way::Tracked => f(&Given::from(&one.requires_grad(), &zero, &yes)),
            Way::Dual => {
                let mut made = None;
                jvp(
                    |one: &Tensor| {
                        made = Some(f(&Given::from(one, &zero, &yes)));
                        one * 1.0
                    },
                    &one,
                    &one,
                );
                made.expect("the function was called")
            }
        }
    }
}
