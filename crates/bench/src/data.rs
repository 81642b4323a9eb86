//! The numbers every workload starts from: a hash of the index, the same bits as the peers' scripts
//! use, so that the `check` of a row can be compared with theirs.

use pullback::Tensor;

/// The `i`-th value of stream `seed`, in [-1, 1).
fn value(i: u32, seed: u32) -> f32 {
    let mut h =
        (i.wrapping_add(1)).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
    h = (h ^ (h >> 15)).wrapping_mul(2_246_822_519);
    h ^= h >> 13;
    // 24 bits are exact in an f32.
    (h >> 8) as f32 / 16_777_216.0 * 2.0 - 1.0
}

/// Values in [-scale, scale).
pub fn fill(n: usize, seed: u32, scale: f32) -> Vec<f32> {
    (0..n as u32).map(|i| value(i, seed) * scale).collect()
}

/// A tensor of values in [-1, 1).
pub fn tensor(shape: &[usize], seed: u32) -> Tensor {
    Tensor::from_vec(fill(shape.iter().product(), seed, 1.0), shape)
}

/// Class numbers in [0, classes).
pub fn labels(n: usize, seed: u32, classes: usize) -> Vec<i64> {
    let class = |v: f32| (((v * 0.5 + 0.5) * classes as f32) as i64).min(classes as i64 - 1);
    fill(n, seed, 1.0).into_iter().map(class).collect()
}

/// `rows` sequences of `length` tokens, and for each token the one that follows it.
pub fn tokens(rows: usize, length: usize, vocabulary: usize) -> (Vec<i64>, Vec<i64>) {
    let all = labels(rows * (length + 1), 1, vocabulary);
    let sequences = || all.chunks_exact(length + 1);
    (
        sequences().flat_map(|s| &s[..length]).copied().collect(),
        sequences().flat_map(|s| &s[1..]).copied().collect(),
    )
}

/// Gives the parameters of a model, uniform in ±1/√fan-in, one stream each.
pub struct Init {
    seed: u32,
}

impl Init {
    /// From the first stream.
    pub fn new() -> Init {
        Init { seed: 100 }
    }

    /// The next parameter.
    pub fn next(&mut self, shape: &[usize], fan_in: usize) -> Tensor {
        self.seed += 1;
        let scale = (fan_in as f64).powf(-0.5) as f32;
        Tensor::from_vec(fill(shape.iter().product(), self.seed, scale), shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `common.py`: `fill((4,), 1)`, `fill((2,), 107, 784**-0.5)`, `labels((8,), 2, 10)`.
    #[test]
    fn the_bits_are_those_of_the_peers() {
        assert_eq!(fill(4, 1, 1.0).iter().map(|v| v.to_bits()).collect::<Vec<_>>(), FILL_BITS);
        let init = fill(2, 107, 784f64.powf(-0.5) as f32);
        assert_eq!(init.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), INIT_BITS);
        assert_eq!(labels(8, 2, 10), LABELS);
    }

    const FILL_BITS: [u32; 4] = [1050022012, 1062125346, 1054630668, 1056233816];
    const INIT_BITS: [u32; 2] = [1021873944, 3166299511];
    const LABELS: [i64; 8] = [1, 7, 1, 8, 8, 0, 2, 4];

    #[test]
    fn targets_are_the_next_tokens() {
        let (x, y) = tokens(2, 3, 512);
        assert_eq!((x.len(), y.len()), (6, 6));
        assert_eq!((x[1], x[4]), (y[0], y[3]));
    }
}
