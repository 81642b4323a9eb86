//! Printing rows: JSON lines with the peers' fields, or an aligned table.

use crate::compiled;
use crate::limits;
use crate::measure::Measurement;
use crate::workloads;
use pullback::{Device, default_device};
use std::io::Write as _;

/// The name of the rows.
fn peer() -> &'static str {
    if compiled::on() { "pullback-jit" } else { "pullback-eager" }
}

/// Figures of some rows only, with their names in the table.
const EXTRAS: [(&str, &str); 10] = [
    ("ns_per_node", "ns/node"),
    ("us_per_op", "µs/op"),
    ("gflops", "GFLOP/s"),
    ("tflops", "TFLOP/s"),
    ("gb_per_s_of_floor", "GB/s of the least traffic"),
    ("tokens_per_s", "tokens/s"),
    ("images_per_s", "images/s"),
    ("ratio", "× forward"),
    ("fwd_ms", "ms forward"),
    ("sustained_ms", "ms sustained"),
];

/// Names the workloads of a device.
pub fn list(device: Device) {
    for workload in workloads::of(device) {
        say(&format!("{:<28}  {}", workload.name, workload.about));
    }
}

/// What this machine does at most.
pub fn limits(threads: usize) {
    say(&limits::of_machine(threads));
}

/// Prints a line; a closed pipe ends the program silently.
fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// The table's first line.
pub fn header() {
    say(&format!(
        "{:<28} {:>11} {:>11} {:>6} {:>9} {:>9} {:>9}  {:<12}  more",
        "workload", "median ms", "least ms", "runs", "first ms", "other cpu", "peak MiB", "check"
    ));
}

/// One row.
pub fn row(name: &str, row: &Measurement, json: bool) {
    say(&if json { json_line(name, row) } else { table_line(name, row) });
}

/// A workload whose process failed.
pub fn failure(name: &str, error: &str, json: bool) {
    say(&match json {
        true => format!(
            r#"{{"peer": "{}", "workload": "{name}", "error": "{}"}}"#,
            peer(),
            error.replace(['"', '\\'], "'")
        ),
        false => format!("{name:<28} failed: {error}"),
    });
}

fn json_line(name: &str, row: &Measurement) -> String {
    let mut line = format!(
        r#"{{"peer": "{}", "version": "{}", "device": "{}", "workload": "{name}{}""#,
        peer(),
        env!("CARGO_PKG_VERSION"),
        default_device(),
        row.suffix
    );
    for (key, value) in &row.fields {
        // JSON has no NaN.
        let value = if value.is_finite() { value.to_string() } else { "null".into() };
        line += &format!(r#", "{key}": {value}"#);
    }
    line + "}"
}

fn table_line(name: &str, row: &Measurement) -> String {
    let figure =
        |key: &str, digits: usize| row.get(key).map_or("-".into(), |v| format!("{v:.digits$}"));
    let extras = EXTRAS.iter().filter_map(|(key, unit)| {
        // Times on a GPU are short.
        let digits = if key.ends_with("_ms") { 4 } else { 1 };
        Some(format!("{:.digits$} {unit}", row.get(key)?))
    });
    let line = format!(
        "{:<28} {:>11} {:>11} {:>6} {:>9} {:>9} {:>9}  {:<12}  {}",
        format!("{name}{}", row.suffix),
        figure("ms", 4),
        figure("min_ms", 4),
        figure("runs", 0),
        figure("first_ms", 2),
        figure("other_cpu", 2),
        figure("peak_mib", 1),
        row.get("check").map_or("-".into(), |v| format!("{v:.6}")),
        extras.chain(limits::words(row)).collect::<Vec<_>>().join(", "),
    );
    line.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_json_object() {
        let row = Measurement::default()
            .named("_fwd")
            .with("ms", 1.5)
            .with("runs", 10.0)
            .with("check", f64::NAN);
        let line = json_line("mlp", &row);
        assert!(line.starts_with(r#"{"peer": "pullback-eager", "version": ""#));
        assert!(line.ends_with(r#""workload": "mlp_fwd", "ms": 1.5, "runs": 10, "check": null}"#));
    }
}
