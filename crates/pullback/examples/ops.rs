//! Prints `docs/ops.md`, and writes `docs/functions.md`, so that both are regenerated together:
//! `cargo run --release --example ops > docs/ops.md`.

#[allow(dead_code)] // what only the test of the documentation looks at
#[path = "../tests/docs/functions.rs"]
mod functions;

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/functions.md");
    std::fs::write(path, functions::markdown())?;
    print!("{}", pullback::table::markdown());
    Ok(())
}
