//! Prints `docs/ops.md`: `cargo run -p pullback --example ops > docs/ops.md`.

fn main() {
    print!("{}", pullback::table::markdown());
}
