//! Where libraries are looked for.
//!
//! In this order: the folders of `PULLBACK_CUDA_LIBRARIES`, the loader's own path, the toolkit
//! (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`), and the `nvidia` packages of a Python environment
//! (`VIRTUAL_ENV`, `CONDA_PREFIX`).

#[cfg(any(unix, windows))]
use libloading::Library;
#[cfg(not(any(unix, windows)))]
use no_loader::Library;
use std::path::{Path, PathBuf};

/// Names folders to look in first.
const VARIABLE: &str = "PULLBACK_CUDA_LIBRARIES";

/// Opens the first of these files that is there: the first name in all folders, then the second.
pub(crate) fn open(what: &str, names: &[&str]) -> Result<(Library, String), String> {
    let named = std::env::var_os(VARIABLE);
    let named: Vec<PathBuf> = named.map_or(Vec::new(), |v| std::env::split_paths(&v).collect());
    let others = folders();
    let mut broken = String::new();
    for name in names {
        let within = |folder: &PathBuf| folder.join(name);
        let by_loader = std::iter::once(PathBuf::from(name));
        let files = named.iter().map(within).chain(by_loader).chain(others.iter().map(within));
        for file in files {
            open_builtins(&file);
            // SAFETY: opening one of these libraries runs its initialisers, as in any program that
            // links it.
            let mut opened = unsafe { Library::new(&file) };
            // What it links may lie in other folders, which the loader does not know.
            if opened.is_err() && file.is_file() && open_needed(name, &named, &others) {
                // SAFETY: as above.
                opened = unsafe { Library::new(&file) };
            }
            match opened {
                Ok(library) => return Ok((library, file.to_string_lossy().into_owned())),
                // A file that is there and does not open is worth a word.
                Err(error) if file.is_file() => broken = format!("; {error}"),
                Err(_) => {}
            }
        }
    }
    let list = |of: &[PathBuf]| of.iter().map(|f| f.display().to_string()).collect::<Vec<_>>();
    let looked: Vec<String> = list(&named).into_iter().chain(list(&others)).collect();
    let looked = if looked.is_empty() { String::new() } else { format!(", {}", looked.join(", ")) };
    Err(format!(
        "{what} was not found: looked for {} in the loader's path{looked}{broken} ({VARIABLE} may \
         name more folders)",
        names.join(", ")
    ))
}

/// NVRTC opens its builtins by name alone: beside a full path they must be open before it.
fn open_builtins(file: &Path) {
    let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) else { return };
    if !file.to_string_lossy().contains("libnvrtc.so") || !file.is_file() {
        return;
    }
    for part in entries(folder) {
        if part.to_string_lossy().contains("libnvrtc-builtins.so") {
            // SAFETY: as in `open`. It stays open.
            std::mem::forget(unsafe { Library::new(&part) });
        }
    }
}

/// The libraries that a library links, in an order in which they open.
fn needed(name: &str) -> &'static [&'static str] {
    match name {
        "libcublas.so.13" => &["libcublasLt.so.13"],
        "libcublas.so.12" => &["libcublasLt.so.12"],
        "libcusolver.so.12" => {
            &["libnvJitLink.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcusparse.so.12"]
        }
        "libcusolver.so.11" => {
            &["libnvJitLink.so.12", "libcublasLt.so.12", "libcublas.so.12", "libcusparse.so.12"]
        }
        _ => &[],
    }
}

/// Opens what a library links from all folders; once open, the loader knows each by its name.
/// Returns whether there was any.
fn open_needed(name: &str, named: &[PathBuf], others: &[PathBuf]) -> bool {
    for part in needed(name) {
        let mut files = named.iter().chain(others).map(|folder| folder.join(part));
        if let Some(file) = files.find(|file| file.is_file()) {
            // SAFETY: as in `open`. It stays open.
            std::mem::forget(unsafe { Library::new(&file) });
        }
    }
    !needed(name).is_empty()
}

fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut found: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(variable)
        .map(|toolkit| toolkit.join("lib64"))
        .collect();
    found.push(PathBuf::from("/usr/local/cuda/lib64"));
    for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable) {
        let pythons = entries(&root.join("lib"));
        found.push(root.join("lib"));
        let packages = pythons.iter().flat_map(|p| entries(&p.join("site-packages/nvidia")));
        found.extend(packages.map(|package| package.join("lib")));
    }
    found.retain(|folder| folder.is_dir());
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder);
    let mut all: Vec<PathBuf> =
        read.map_or(Vec::new(), |all| all.flatten().map(|e| e.path()).collect());
    all.sort();
    all
}

/// Targets such as WebAssembly open no libraries.
#[cfg(not(any(unix, windows)))]
mod no_loader {
    use std::convert::Infallible;
    use std::path::Path;

    pub(crate) struct Library(Infallible);

    impl Library {
        /// # Safety
        /// None: it fails.
        pub(crate) unsafe fn new(_: &Path) -> Result<Library, &'static str> {
            Err("this target opens no libraries")
        }

        /// # Safety
        /// None: there is no library to call it on.
        pub(crate) unsafe fn get<T>(&self, _: &[u8]) -> Result<&'static T, Infallible> {
            match self.0 {}
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_missing_library_is_a_sentence() {
        let error = super::open("Nothing", &["libnothing.so.1"]).expect_err("not there");
        let wanted = "Nothing was not found: looked for libnothing.so.1 in the loader's path";
        assert!(error.starts_with(wanted), "{error}");
        assert!(error.contains("PULLBACK_CUDA_LIBRARIES may name more folders"), "{error}");
    }
}
