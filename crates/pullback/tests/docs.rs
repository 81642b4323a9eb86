//! The generated documentation is fresh.

#[test]
fn docs_ops_md_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops.md");
    let written = std::fs::read_to_string(path).expect("docs/ops.md is there");
    let hint = "write it anew: cargo run -p pullback --example ops > docs/ops.md";
    assert_eq!(written, pullback::table::markdown(), "{hint}");
}
