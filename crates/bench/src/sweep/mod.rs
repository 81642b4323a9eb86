//! `pullback-bench sweep`: every function of `docs/functions.md` beside PyTorch, at three sizes,
//! forward and with gradients, sorted by the ratio of the times.
//!
//! A row is a function's name, its operands, the call, and the same in PyTorch. The operands are
//! made here and sent to `peers/torch_sweep.py`, which runs all the time, so both sides compute
//! the same from the same bits. They are timed in turns, and the least time counts, so that the
//! load of the machine meets both. Whether a row has a gradient the results tell.
//!
//! Operands are written `shape:kind`, with `!` where no gradient is taken. A length is a number or
//! a letter, which stands for a number at each size ([`LENGTHS`]), or `c*9`, `n/16`. Kinds:
//! nothing ([-1, 1)), `a..b` (floats), `a<b` (integers), `bool`, `bf16`, `sorted`, and the
//! matrices `spd`, `dominant` (a large diagonal) and `lower`.

/// Rows: `"name" "operands" |x, y| call => "the same in PyTorch";`
macro_rules! rows {
    ($($name:literal $operands:literal |$($x:ident),+| $call:expr => $torch:literal;)*) => {
        &[$(Row {
            name: $name,
            operands: $operands,
            call: |operands| {
                let [$($x),+] = operands else { panic!("{}: {} operands", $name, operands.len()) };
                $call
            },
            torch: $torch,
        }),*]
    };
}

mod elements;
mod operands;
mod peer;
mod report;
mod structured;
mod unary;

use crate::{compiled, measure};
use operands::Operand;
use peer::Peer;
use pullback::{Tensor, catch, no_grad};
use std::process::ExitCode;
use std::time::Instant;

/// A function and its counterpart.
pub struct Row {
    name: &'static str,
    operands: &'static str,
    call: fn(&[Tensor]) -> Tensor,
    torch: &'static str,
}

/// What the letters of operands stand for at 1K, 64K and 4M elements: vectors `n`, matrices `m`,
/// matrices in products `q` and where the work is the cube of the length `k`, images `b,c,h,h`,
/// signals `b,c,l`, volumes `b,c,v,v,v`.
const LENGTHS: [(char, [usize; 3]); 9] = [
    ('n', [1 << 10, 1 << 16, 1 << 22]),
    ('m', [32, 256, 2048]),
    ('q', [32, 256, 1024]),
    ('k', [32, 128, 512]),
    ('b', [1, 4, 16]),
    ('c', [4, 16, 64]),
    ('h', [16, 32, 64]),
    ('l', [256, 1024, 4096]),
    ('v', [6, 10, 16]),
];
const SIZES: [&str; 3] = ["1K", "64K", "4M"];

/// Functions without a row, and why.
#[rustfmt::skip]
#[cfg(test)]
const WITHOUT: &[(&str, &[&str])] = &[
    ("need other workers", &["all_reduce", "all_reduce_mean", "all_reduce_max", "all_reduce_min", "all_gather", "reduce_scatter", "broadcast_from", "all_to_all", "send", "recv", "recv_after"]),
    ("views: no work", &["reshape", "view", "transpose", "t", "move_axis", "unsqueeze", "squeeze", "squeeze_axis", "flatten", "unflatten", "select_at", "diagonal", "diagonal_of", "at", "at_least", "move_axes", "squeeze_axes", "broadcast_tensors", "split", "split_sizes", "chunk", "unbind", "split_into", "split_at", "meshgrid"]),
    ("PyTorch has none", &["betaln", "isotonic", "soft_sort", "soft_rank", "soft_argmax", "linalg::matrix_sqrth", "linalg::polar", "straight_through", "round_ste", "sign_ste", "threshold_ste", "reverse_gradient", "scale_gradient", "clip_gradient", "clip_gradient_value", "bin_edges", "losses::weighted_by", "as_strided_put"]),
    ("another row with other words", &["losses::ctc_by", "losses::triplet_margin_with", "inv", "det", "masked::logaddexp", "linalg::tensorinv", "linalg::tensorsolve", "unique_over", "unique_consecutive_over", "max_unpool1d", "max_unpool3d", "fft::ifft2", "fft::irfft2", "fft::hfft2", "fft::ihfft2", "fft::hfftn", "fft::ihfftn", "fft::ifftshift", "linalg::lu_unpack", "linalg::lu_solve", "losses::multilabel_margin", "segment_reduce"]),
    ("constants, not functions of a tensor", &["fft::fftfreq", "fft::rfftfreq", "tril_indices", "triu_indices"]),
    ("workload `updates`", &["update::sgd_", "update::adam_"]),
];

/// All rows.
fn every() -> impl Iterator<Item = &'static Row> {
    unary::ROWS.iter().copied().flatten().chain(elements::ROWS).chain(structured::ROWS)
}

/// The times of a row at a size, in seconds.
pub struct Times {
    row: &'static Row,
    size: usize,
    gradient: bool,
    ours: f64,
    theirs: f64,
}

impl Times {
    fn ratio(&self) -> f64 {
        self.ours / self.theirs
    }
}

/// Runs the sweep over the functions whose names contain one of the words (all if there is none);
/// with `--part K/N`, over the rows of every Nth, from the Kth on, so that a sweep can be several
/// short runs.
pub fn run(words: impl Iterator<Item = String>) -> ExitCode {
    let (mut names, mut python, mut rounds, mut threads) = (Vec::new(), "python3".into(), 3, 1);
    let mut sizes = vec![0, 1, 2];
    let mut part = (1, 1);
    let mut words = words;
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        match (word.as_str(), word.strip_prefix("--")) {
            ("--jit", _) => compiled::switch_on(),
            ("--rounds", _) => rounds = number().unwrap_or(rounds),
            ("--threads", _) => threads = number().unwrap_or(threads),
            ("--size", _) => sizes = number().filter(|&n| n <= 3).map_or(sizes, |n| vec![n - 1]),
            ("--part", _) => part = words.next().as_deref().and_then(fraction).unwrap_or(part),
            ("--python", _) => python = words.next().unwrap_or(python),
            (_, Some(_)) => {
                eprintln!(
                    "usage: pullback-bench sweep [function …] [--python EXE] [--jit] [--rounds N] \
                     [--size 1..3] [--part K/N] [--threads N]"
                );
                return ExitCode::from(2);
            }
            _ => names.push(word),
        }
    }
    pullback::set_threads(threads);
    let mut peer = match Peer::start(&python, threads) {
        Ok(peer) => peer,
        Err(error) => {
            eprintln!("pullback-bench: the sweep's peer does not start: {error}");
            return ExitCode::from(2);
        }
    };
    let chosen = |row: &&Row| names.is_empty() || names.iter().any(|n| row.name.contains(&**n));
    let mut times = Vec::new();
    for row in every().skip(part.0 - 1).step_by(part.1).filter(chosen) {
        for &size in &sizes {
            match catch(|| compare(row, size, rounds, &mut peer)) {
                Ok(Ok(of_row)) => times.extend(of_row),
                Ok(Err(error)) => eprintln!("{} at {}: {error}", row.name, SIZES[size]),
                Err(error) => eprintln!("{} at {}: {error}", row.name, SIZES[size]),
            }
        }
    }
    report::print(times);
    ExitCode::SUCCESS
}

/// The numbers of `K/N`, if K is one of 1 to N.
fn fraction(text: &str) -> Option<(usize, usize)> {
    let (k, n) = text.split_once('/')?;
    let numbers = (k.parse().ok()?, n.parse().ok()?);
    (1..=numbers.1).contains(&numbers.0).then_some(numbers)
}

/// Forward and, if it has one, gradient of a row at a size, on both sides.
fn compare(
    row: &'static Row,
    size: usize,
    rounds: usize,
    peer: &mut Peer,
) -> Result<Vec<Times>, String> {
    let operands: Vec<Operand> = operands::parse(row.operands, size);
    peer.send(row.torch, &operands)?;
    let inputs: Vec<Tensor> = operands.iter().map(Operand::leaf).collect();
    let y = (row.call)(&inputs);
    let cotangent = y.is_tracked().then(|| crate::data::tensor(y.shape(), 9).cast(y.dtype()));
    let forward = compiled::step(|| no_grad(|| (row.call)(&inputs)));
    let gradient = compiled::step(|| {
        inputs.iter().for_each(Tensor::zero_grad);
        let y = (row.call)(&inputs);
        y.backward_with(cotangent.as_ref().unwrap_or(&y)).expect("the shapes are equal");
    });
    let mut all = vec![(false, f64::INFINITY, f64::INFINITY)];
    if cotangent.is_some() {
        all.push((true, f64::INFINITY, f64::INFINITY));
    }
    for _ in 0..rounds {
        for (with_gradient, ours, theirs) in &mut all {
            *theirs = theirs.min(peer.time(*with_gradient)?);
            *ours = ours.min(match (*with_gradient, compiled::on()) {
                (true, _) => least(&gradient),
                (false, true) => least(|| drop(forward())),
                (false, false) => least(|| drop(no_grad(|| (row.call)(&inputs)))),
            });
        }
    }
    let rows = all.into_iter().filter(|(_, _, theirs)| theirs.is_finite());
    Ok(rows.map(|(gradient, ours, theirs)| Times { row, size, gradient, ours, theirs }).collect())
}

/// Seconds of one batch of calls, at least, and of all batches.
const BATCH: f64 = 2e-4;
const BUDGET: f64 = 0.02;

/// The least time of a call: over batches of calls, each long enough for the clock. The peer's
/// script measures the same way.
fn least(mut call: impl FnMut()) -> f64 {
    let mut batch = |calls: usize| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / calls as f64
    };
    batch(1);
    let calls = (BATCH / batch(1)).ceil().clamp(1.0, 1000.0) as usize;
    let (start, mut best) = (Instant::now(), batch(calls));
    while start.elapsed().as_secs_f64() < BUDGET {
        best = best.min(batch(calls));
    }
    measure::rounded(best, 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the first column of `docs/functions.md`.
    fn documented() -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/functions.md");
        let text = std::fs::read_to_string(path).expect("the list of functions is there");
        let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_string());
        text.lines().filter_map(name).collect()
    }

    #[test]
    fn every_function_has_a_row_or_a_reason() {
        let functions = documented();
        let without: Vec<&str> = WITHOUT.iter().flat_map(|(_, names)| *names).copied().collect();
        let named = |name: &str| every().any(|row| row.name == name) || without.contains(&name);
        let missing: Vec<_> = functions.iter().filter(|name| !named(name)).collect();
        assert!(missing.is_empty(), "no row in the sweep for {missing:?}");
        let listed = every().map(|row| row.name).chain(without.iter().copied());
        let unknown: Vec<_> = listed.filter(|name| !functions.iter().any(|f| f == name)).collect();
        assert!(unknown.is_empty(), "rows for functions that are not there: {unknown:?}");
    }

    #[test]
    fn every_row_runs_with_its_gradient() {
        for row in every() {
            let inputs: Vec<_> =
                operands::parse(row.operands, 0).iter().map(Operand::leaf).collect();
            let y = (row.call)(&inputs);
            if y.is_tracked() {
                let g = crate::data::tensor(y.shape(), 9).cast(y.dtype());
                let done = y.backward_with(&g);
                assert!(done.is_ok(), "{}: {done:?}", row.name);
            }
        }
    }
}
