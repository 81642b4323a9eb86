//! Running the program, and comparing what it prints with recorded texts.

use std::path::PathBuf;
use std::process::{Command, Output};

/// What a run of the program gave.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// The program with these words, without colours and without anything of the environment that it
/// looks at.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pullback"));
    command.args(words).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

pub fn run(words: &[&str]) -> Ran {
    ran(command(words).output().expect("the program starts"))
}

pub fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Compares a text with `tests/golden/NAME`; `UPDATE_GOLDEN=1` writes it instead.
#[allow(dead_code)] // not every test file has recorded texts
pub fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(wanted == text, "{name} differs (UPDATE_GOLDEN=1 records it anew); now it is:\n{text}");
}
