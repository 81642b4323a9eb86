//! Hostile inputs: valid ones with some damage, and what holds while they are read.

use crate::rng::Rng;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More address space than this for inputs of a few kilobytes is out of proportion.
const MEMORY: u64 = 1 << 30;
/// No input takes longer, on a machine however busy.
const TIME: Duration = Duration::from_secs(30);

/// How many inputs are read between two looks at the memory.
const EVERY: u64 = 64;

/// One target at a time: what memory is taken is that of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Gives `count` inputs to a reader. It may answer as it likes, but not panic, hang, or take memory
/// out of proportion.
pub fn feed(name: &str, count: usize, make: impl Fn(&mut Rng) -> Vec<u8>, read: impl Fn(&[u8])) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = most_memory();
    for seed in 0..count as u64 {
        let input = make(&mut Rng::new(seed));
        let begun = Instant::now();
        let result = panic::catch_unwind(AssertUnwindSafe(|| read(&input)));
        let shown = || format!("{name}, input {seed}: {:?}", String::from_utf8_lossy(&input));
        if let Err(panic) = result {
            eprintln!("{}", shown());
            panic::resume_unwind(panic);
        }
        assert!(begun.elapsed() < TIME, "{} took {:?}", shown(), begun.elapsed());
        // A peak stays; asking for it takes longer than most inputs do.
        if seed % EVERY == EVERY - 1 || seed + 1 == count as u64 {
            let grown = most_memory().saturating_sub(before);
            let first = seed - seed % EVERY;
            assert!(grown < MEMORY, "{name}, one of inputs {first} to {seed}, took {grown} bytes");
        }
    }
}

/// The most address space that this process ever had, where the system says it.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let words = line.and_then(|rest| rest.split_whitespace().next());
    words.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// One of some valid inputs, damaged a few times.
pub fn damaged(rng: &mut Rng, valid: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = rng.pick(valid).clone();
    for _ in 0..1 + rng.below(4) {
        damage(rng, &mut bytes, valid);
    }
    bytes
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, valid: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.extend(rng.bits().to_le_bytes());
        return;
    }
    // Headers are at the front, and are where the harm is.
    let end = if rng.chance(0.6) { bytes.len().min(96) } else { bytes.len() };
    let at = rng.below(end);
    match rng.below(9) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.bits() as u8,
        2 => bytes.truncate(at),
        // A number of 1 to 8 bytes, in either order, that is as large as can be, or off by one.
        3 | 4 => {
            let width = *rng.pick(&[1, 2, 4, 8]);
            let few = rng.below(9) as u64;
            let number =
                *rng.pick(&[u64::MAX, i64::MAX as u64, 1 << 63, 1 << 40, 1 << 32, 1 << 31, 0, few]);
            let spelt = if rng.chance(0.5) { number.to_le_bytes() } else { number.to_be_bytes() };
            let from = if spelt[0] == 0 { 8 - width } else { 0 };
            let n = width.min(bytes.len() - at);
            bytes[at..at + n].copy_from_slice(&spelt[from..from + n]);
        }
        5 => {
            let to = at + rng.below(bytes.len() - at) + 1;
            bytes.drain(at..to);
        }
        6 => {
            let to = (at + 1 + rng.below(16)).min(bytes.len());
            let piece = bytes[at..to].to_vec();
            for _ in 0..1 + rng.below(8) {
                bytes.splice(at..at, piece.iter().copied());
            }
        }
        // A number in a text that is as large as can be.
        7 => {
            let digits: Vec<usize> =
                (0..bytes.len()).filter(|&i| bytes[i].is_ascii_digit()).collect();
            if !digits.is_empty() {
                let at = *rng.pick(&digits);
                let number = *rng.pick(&[
                    "18446744073709551615",
                    "-1",
                    "9223372036854775807",
                    "4294967296",
                    "99999999",
                    "0",
                    "1e308",
                ]);
                bytes.splice(at..=at, number.bytes());
            }
        }
        _ => {
            let other = rng.pick(valid);
            if !other.is_empty() {
                let from = rng.below(other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
        }
    }
}

/// Random words of a language, one after the other.
pub fn babble(rng: &mut Rng, words: &[&str], most: usize) -> String {
    (0..rng.below(most) + 1).map(|_| *rng.pick(words)).collect()
}
