//! Recordings that mean harm: small files that would take far more memory than they have bytes.

use super::recordings::captured;
use pullback::Tensor;
use pullback::record_file::{MAX_BYTES, MAX_LIST, MAX_NAME, MAX_NODES, Recording};
use pullback_explore::answer::recording::{OpenedRecording, PAGE};

/// A file, byte by byte, as the recorder would not write it.
#[derive(Clone)]
struct File(Vec<u8>);

impl File {
    /// A leaf with a label, then `ops` nodes with that many operands: the leaf each time.
    fn new(label: usize, ops: usize, operands: usize) -> File {
        let mut file = File(b"pullback recording\n".to_vec());
        file.numbers(&[2, 1]);
        ["sin", "sin", "pointwise"].into_iter().for_each(|text| file.text(text));
        file.numbers(&[1]);
        file.text("f32[]");
        // No axes, lines and parts, and one label.
        file.numbers(&[0, 0, 0, 1]);
        file.text(&"x".repeat(label));
        file.numbers(&[1 + ops, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        for _ in 0..ops {
            file.numbers(&[0, 1, 0, 0, 0, 0, 0, operands]);
            file.0.resize(file.0.len() + operands, 0);
            file.numbers(&[0, 0, 0]);
        }
        file
    }

    /// Visits with that many contributions to the leaf, of which nothing is known, and the end.
    fn end(mut self, visits: usize, contributions: usize) -> Result<OpenedRecording, String> {
        self.numbers(&[visits]);
        for _ in 0..visits {
            self.numbers(&[0, 0, contributions]);
            self.0.resize(self.0.len() + 3 * contributions, 0);
        }
        self.numbers(&[0, 0, 0, 0]);
        OpenedRecording::bytes("x".into(), &self.0).map_err(|problem| problem.message)
    }

    fn numbers(&mut self, all: &[usize]) {
        for &(mut n) in all {
            while n >= 0x80 {
                self.0.push(n as u8 | 0x80);
                n >>= 7;
            }
            self.0.push(n as u8);
        }
    }

    fn text(&mut self, text: &str) {
        self.numbers(&[text.len()]);
        self.0.extend(text.as_bytes());
    }
}

#[test]
fn what_would_be_repeated_too_often_is_refused() {
    let message = |outcome: Result<OpenedRecording, String>| match outcome {
        Ok(_) => panic!("it is read"),
        Err(message) => message,
    };
    let long = message(File::new(64 << 10, 1, 1).end(0, 0));
    assert_eq!(long, "a label has 65536 bytes, and at most 512 are read");
    let wide = message(File::new(1, 1, 250_000).end(0, 0));
    assert!(wide.contains("250000 operands") && wide.contains("at most 4096"), "{wide}");
    let many = 4 * MAX_NODES / MAX_LIST + 1;
    let all = message(File::new(1, many, MAX_LIST).end(0, 0));
    assert!(all.contains("1000000 operands in all"), "{all}");
    let wide = message(File::new(1, 1, 1).end(1, MAX_LIST + 1));
    assert!(wide.contains("4097 contributions"), "{wide}");
    let all = message(File::new(1, 1, 1).end(many, MAX_LIST));
    assert!(all.contains("1000000 contributions in all"), "{all}");
}

#[test]
fn answers_about_the_largest_lists_are_small() {
    let file = File::new(MAX_NAME, PAGE, MAX_LIST);
    let opened = file.end(PAGE, MAX_LIST).expect("it is within the limits");
    let tape = opened.answer("/api/recording/tape", "from=0&count=100000").expect("a page");
    assert_eq!(
        (&tape["total"], tape["nodes"].as_array().map(Vec::len)),
        (&(PAGE + 1).into(), Some(PAGE))
    );
    assert!(tape.to_string().len() < 8 << 20, "{} bytes", tape.to_string().len());
    let formula = tape["nodes"][1]["formula"].as_str().expect("a formula");
    assert_eq!(formula.matches("xx,").count(), 16);
    assert!(formula.ends_with(", …)"), "{formula}");
    let sweep = opened.answer("/api/recording/sweep", "").expect("a page");
    assert!(sweep.to_string().len() < 8 << 20, "{} bytes", sweep.to_string().len());
    let visit = &sweep["visits"][0];
    let shown = visit["contributions"].as_array().expect("a list").len();
    assert_eq!(visit["left_out"], MAX_LIST - shown);
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("large.pullback");
    // Nothing but its length is on the disk.
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(MAX_BYTES as u64 + 1).expect("a length");
    let message = OpenedRecording::file(&path).err().expect("it is refused").message;
    assert!(message.ends_with(&format!("is larger than {MAX_BYTES} bytes")), "{message}");
}

/// What is recorded can be read again: names that are too long are cut.
#[test]
fn long_names_are_cut_when_they_are_written() {
    let x = Tensor::from(2.0).requires_grad();
    let name = format!("a{}", "é".repeat(400));
    let (_, recording) = captured(&[(&name, &x)], || x.square().backward().expect("a gradient"));
    let read = Recording::from_bytes(&recording.to_bytes()).expect("a recording");
    let label = &read.labels[0];
    assert!(label.len() <= MAX_NAME && label.len() > MAX_NAME - 4, "{}", label.len());
    assert!(label.ends_with("é…") && name.starts_with(label.trim_end_matches('…')));
}
