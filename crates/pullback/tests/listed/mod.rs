//! Every file of tests is run. A module of one binary of each crate that groups its tests.

/// Files are no tests by themselves: each is a module of a group, or is named in `Cargo.toml`.
#[test]
fn every_file_here_is_run() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let read = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().path();
    let entries: Vec<_> = std::fs::read_dir(root).unwrap().map(read).collect();
    let stem = |path: &std::path::Path| path.file_stem().unwrap().to_str().unwrap().to_string();
    let sources = entries.iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let groups: Vec<String> = sources
        .clone()
        .filter(|path| stem(path).starts_with("group_"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let folders = entries.iter().filter(|path| path.join("main.rs").exists());
    for name in sources.chain(folders).map(|path| stem(path)) {
        let module = format!("mod {name};\n");
        let known = manifest.contains(&format!("name = \"{name}\"\n"))
            || groups.iter().any(|group| group.contains(&module));
        assert!(known, "tests/{name} is neither in a group nor in Cargo.toml, so it is never run");
    }
}
