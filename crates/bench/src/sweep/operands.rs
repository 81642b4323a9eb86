//! The operands of a row: parsed, made, and as bytes for the peer.

use super::LENGTHS;
use crate::data::{fill, labels};
use pullback::{DType, Tensor};

/// One operand.
pub struct Operand {
    pub value: Tensor,
    /// Whether a gradient is taken.
    pub wanted: bool,
}

impl Operand {
    /// The operand as a leaf.
    pub fn leaf(&self) -> Tensor {
        match self.wanted {
            true => self.value.deep_clone().requires_grad(),
            false => self.value.clone(),
        }
    }

    /// Dtype, shape and whether a gradient is taken, as the peer reads them; and the elements.
    pub fn message(&self) -> (String, Vec<u8>) {
        let lengths: Vec<String> = self.value.shape().iter().map(ToString::to_string).collect();
        let head = format!("{} {} {}", self.value.dtype(), lengths.join(","), self.wanted);
        // bf16 travels as f32.
        let bytes = match self.value.dtype() {
            DType::I64 => self.value.to_vec::<i64>().iter().flat_map(|v| v.to_le_bytes()).collect(),
            DType::Bool => self.value.to_vec::<bool>().iter().map(|&v| u8::from(v)).collect(),
            _ => {
                let floats = self.value.cast(DType::F32).to_vec::<f32>();
                floats.iter().flat_map(|v| v.to_le_bytes()).collect()
            }
        };
        (head, bytes)
    }
}

/// All operands of a row at a size. The table is part of the program, so what cannot be read is a
/// panic.
pub fn parse(text: &str, size: usize) -> Vec<Operand> {
    let numbered = text.split_whitespace().zip(1..);
    numbered.map(|(word, seed)| operand(word, size, seed)).collect()
}

fn operand(word: &str, size: usize, seed: u32) -> Operand {
    let (word, wanted) = word.strip_suffix('!').map_or((word, true), |word| (word, false));
    let (lengths, kind) = word.split_once(':').unwrap_or((word, "-1..1"));
    let shape: Vec<usize> = lengths.split(',').map(|l| length(l, size)).collect();
    let count = shape.iter().product();
    let floats = |low: f64, high: f64| {
        let at = |v: f32| (low + (high - low) * (f64::from(v) * 0.5 + 0.5)) as f32;
        Tensor::from_vec(fill(count, seed, 1.0).into_iter().map(at).collect::<Vec<_>>(), &shape)
    };
    let integers = |low: &str, high: &str| {
        let (low, high) = (length(low, size), length(high, size));
        Tensor::from_vec(labels(count, seed, high - low), &shape) + low as i64
    };
    let square = || floats(-1.0, 1.0);
    let one = || Tensor::eye_with(shape[shape.len() - 1], shape[shape.len() - 1], DType::F32);
    let n = shape.last().map_or(1.0, |&n| n as f64);
    let value = match kind {
        "bool" => floats(-1.0, 1.0).gt(0.0),
        "bf16" => floats(-1.0, 1.0).cast(DType::BF16),
        "sorted" => floats(-1.0, 1.0).sort(0, false).0,
        "spd" => square().matmul(&square().t()) / n + one(),
        "dominant" => square() / n.sqrt() + one() * 3.0,
        "lower" => (square() / n.sqrt() + one() * 3.0).tril(0),
        _ => match (kind.split_once(".."), kind.split_once('<')) {
            (Some((low, high)), _) => floats(number(low), number(high)),
            (_, Some((low, high))) => integers(low, high),
            _ => panic!("`{kind}` is no kind of operand"),
        },
    };
    let wanted = wanted && value.dtype().is_float();
    Operand { value: value.contiguous(), wanted }
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// A length: letters and numbers, multiplied and divided.
fn length(text: &str, size: usize) -> usize {
    let one = |word: &str| {
        let letter = LENGTHS.iter().find(|(letter, _)| word.starts_with(*letter));
        letter.map_or_else(|| number(word) as usize, |(_, lengths)| lengths[size])
    };
    match (text.split_once('*'), text.split_once('/')) {
        (Some((a, b)), _) => one(a) * one(b),
        (_, Some((a, b))) => one(a) / one(b),
        _ => one(text),
    }
}
