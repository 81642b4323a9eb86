//! The tables of the sweep, as Markdown: a summary, and all rows by ratio.

use super::{SIZES, Times};

/// Prints both.
pub fn print(mut times: Vec<Times>) {
    times.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    println!("| size | rows | geometric mean | above 1.0 | above 1.5 | largest |");
    println!("|---|---|---|---|---|---|");
    for (size, name) in SIZES.iter().enumerate() {
        for (gradient, mode) in [(false, "forward"), (true, "with gradients")] {
            let group = times.iter().filter(|t| t.size == size && t.gradient == gradient);
            summary(&format!("{name}, {mode}"), &group.collect::<Vec<_>>());
        }
    }
    summary("all", &times.iter().collect::<Vec<_>>());
    println!("\n| function | operands | size | | Pullback µs | PyTorch µs | ratio |");
    println!("|---|---|---|---|---|---|---|");
    for t in &times {
        let mode = if t.gradient { "grad" } else { "" };
        println!(
            "| `{}` | {} | {} | {mode} | {:.2} | {:.2} | {:.2} |",
            t.row.name,
            t.row.operands,
            SIZES[t.size],
            t.ours * 1e6,
            t.theirs * 1e6,
            t.ratio()
        );
    }
}

fn summary(name: &str, times: &[&Times]) {
    if times.is_empty() {
        return;
    }
    let above = |limit: f64| times.iter().filter(|t| t.ratio() > limit).count();
    let logs: f64 = times.iter().map(|t| t.ratio().ln()).sum();
    let largest = times.iter().map(|t| t.ratio()).fold(0.0, f64::max);
    println!(
        "| {name} | {} | {:.2} | {} | {} | {largest:.2} |",
        times.len(),
        (logs / times.len() as f64).exp(),
        above(1.0),
        above(1.5)
    );
}
