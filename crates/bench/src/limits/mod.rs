//! What share of the machine's limits a compiled step reaches: `--limits`.
//!
//! A limit is what takes longest at least: the arithmetic of the products (matrix products,
//! convolutions, attention) at the rate of multiply-adds in registers, or the bytes of what the
//! step reads and returns (arguments, parameters, state, gradients; each once) at the rate of a
//! copy of large memory. What lies between, the results of one kernel that the next one reads, is
//! in neither: a cache may hold it.

mod count;
mod equations;
mod machine;

use crate::measure::{Measurement, rounded};
pub use count::Work;
use pullback::Program;
use std::cell::{Cell, RefCell};

/// The workloads that are measured where none is named.
pub const WORKLOADS: [&str; 9] = [
    "mlp_step",
    "cnn_step",
    "gpt_step",
    "lstm_step",
    "attention",
    "matmul",
    "elementwise_chain",
    "softmax",
    "layernorm",
];

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    /// The compiled program of the step that ran last.
    static PROGRAM: RefCell<Option<Program>> = const { RefCell::new(None) };
}

/// Counts from now on, on this thread.
pub fn switch_on() {
    ON.set(true);
}

/// Whether work is counted.
pub fn on() -> bool {
    ON.get()
}

/// Before a step is measured: no program has run.
pub fn forget() {
    PROGRAM.take();
}

/// Keeps the program of a step, if none is kept.
pub fn keep(program: impl FnOnce() -> Option<Program>) {
    if on() {
        PROGRAM.with_borrow_mut(|kept| {
            if kept.is_none() {
                *kept = program();
            }
        });
    }
}

/// After a step was measured: what its program has to do.
pub fn counted(row: Measurement) -> Measurement {
    match PROGRAM.with_borrow(|kept| kept.as_ref().map(Work::of)) {
        Some(work) => work.noted(row),
        None => row,
    }
}

/// The time of each equation of the program that ran last, on the standard error.
pub fn print_equations() {
    let Some(program) = PROGRAM.take() else { return };
    match equations::table(&program) {
        Ok(lines) => lines.iter().for_each(|line| eprintln!("{line}")),
        Err(error) => eprintln!("{error}"),
    }
}

/// The shares that rows with counted work reach of what this machine does just now.
pub fn shares(rows: Vec<Measurement>) -> Vec<Measurement> {
    let machine = machine::rates();
    let share = |row: Measurement| {
        let (Some(gflop), Some(mb)) = (row.get("gflop"), row.get("mb")) else { return row };
        let seconds = row.ms() / 1e3;
        let arithmetic = gflop / seconds / machine.gflops;
        let bandwidth = mb / 1e3 / seconds / machine.gb_per_s;
        row.with("machine_gflops", rounded(machine.gflops, 1))
            .with("machine_gb_per_s", rounded(machine.gb_per_s, 1))
            .with("arithmetic_share", rounded(arithmetic, 3))
            .with("bandwidth_share", rounded(bandwidth, 3))
    };
    rows.into_iter().map(share).collect()
}

/// The words for a row: the larger of its two shares.
pub fn words(row: &Measurement) -> Option<String> {
    let (arithmetic, bandwidth) = (row.get("arithmetic_share")?, row.get("bandwidth_share")?);
    let (gflop, mb) = (row.get("gflop")?, row.get("mb")?);
    Some(match arithmetic >= bandwidth {
        true => format!("{:.0} % of the arithmetic limit ({gflop:.2} GFLOP)", arithmetic * 100.0),
        false => format!("{:.0} % of the bandwidth limit ({mb:.1} MB)", bandwidth * 100.0),
    })
}

/// The limits themselves, as a sentence.
pub fn of_machine(threads: usize) -> String {
    let machine = machine::rates();
    format!(
        "{threads} threads: {:.0} GFLOP/s of f32 multiply-adds in registers, {:.1} GB/s of a copy \
         of large memory (read and written)",
        machine.gflops, machine.gb_per_s
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_share_is_named() {
        let row = Measurement::default().with("ms", 10.0).with("gflop", 2.0).with("mb", 100.0);
        assert_eq!(words(&row), None);
        let near = row.with("arithmetic_share", 0.72).with("bandwidth_share", 0.2);
        assert_eq!(words(&near).unwrap(), "72 % of the arithmetic limit (2.00 GFLOP)");
        let other = Measurement::default().with("gflop", 0.0).with("mb", 134.2);
        let other = other.with("arithmetic_share", 0.0).with("bandwidth_share", 0.9);
        assert_eq!(words(&other).unwrap(), "90 % of the bandwidth limit (134.2 MB)");
    }

    #[test]
    fn the_workloads_exist() {
        assert!(WORKLOADS.iter().all(|name| crate::workloads::find(name).is_some()));
    }

    #[test]
    fn the_machine_has_rates() {
        let machine = machine::rates();
        assert!(machine.gflops > 0.1 && machine.gflops.is_finite(), "{}", machine.gflops);
        assert!(machine.gb_per_s > 0.1 && machine.gb_per_s.is_finite(), "{}", machine.gb_per_s);
    }
}
