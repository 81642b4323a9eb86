//! Every reader of the project on hostile inputs: no panic, no hang, no memory out of proportion.
//! The inputs follow from their numbers, and their number is fixed. Options of `pullback train` in
//! TOML are next to their reader, in `crates/cli/src/train/options.rs`.

use pullback::{Op, Program, Spec, Tensor, catch, einsum};
use pullback_explore::expression;
use pullback_fuzz::explorer::feed_explorer;
use pullback_fuzz::generate;
use pullback_fuzz::hostile::{babble, damaged, feed};
use pullback_fuzz::interpret::function;
use pullback_fuzz::switches::Switches;
use pullback_nn::Linear;
use pullback_nn::data::{
    Csv, Dataset, ImageFolder, parse_idx, parse_npy, parse_npz, parse_safetensors,
};
use pullback_nn::state::{Checkpoint, Checkpoints, SavedCheckpoint, Weights};
use std::io::{Cursor, Write as _};
use std::path::Path;

fn fixtures(ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/data/formats");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    paths.sort();
    let ours = paths.iter().filter(|p| p.extension().is_some_and(|e| e == ending));
    let found: Vec<Vec<u8>> = ours.map(|p| std::fs::read(p).unwrap()).collect();
    assert!(!found.is_empty());
    found
}

/// Recordings and bodies of requests. `pullback-fuzz --explorer 1000000` feeds more.
#[test]
fn explorer() {
    feed_explorer(100_000);
}

#[test]
fn safetensors() {
    let valid = fixtures("safetensors");
    feed(
        "safetensors",
        100_000,
        |rng| damaged(rng, &valid),
        |bytes| {
            let _ = parse_safetensors(bytes, "x");
        },
    );
}

#[test]
fn npy_and_idx() {
    let valid = [fixtures("npy"), fixtures("idx")].concat();
    feed(
        "npy",
        150_000,
        |rng| damaged(rng, &valid),
        |bytes| {
            let _ = parse_npy(&mut &bytes[..], "x");
            let _ = parse_idx(&mut &bytes[..], "x");
        },
    );
}

#[test]
fn npz() {
    let valid = fixtures("npz");
    feed(
        "npz",
        50_000,
        |rng| damaged(rng, &valid),
        |bytes| {
            let _ = parse_npz(Cursor::new(bytes), "x");
        },
    );
}

#[test]
fn csv_and_gz() {
    let texts = [
        "a,b,label\n1,2,x\n3.5,-1e3,y\n",
        "1;2;3\n\"4\";5;\"6\n7\"\n",
        "a\n\n\n1\n",
        "é,b\nnan,inf\n,1\n",
    ];
    let valid: Vec<Vec<u8>> = texts.iter().map(|t| t.as_bytes().to_vec()).collect();
    let read = |bytes: &[u8]| {
        let _ = Csv::new().read_from(bytes, "x");
        let _ = Csv::new().header(false).delimiter(b';').read_from(bytes, "x");
        let _ = Csv::new().label("label").category("b").read_from(bytes, "x");
    };
    feed("csv", 20_000, |rng| damaged(rng, &valid), read);
    let packed: Vec<Vec<u8>> = valid.iter().map(|text| gz(text)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv.gz");
    feed(
        "gz",
        9_000,
        |rng| damaged(rng, &packed),
        |bytes| {
            std::fs::write(&path, bytes).unwrap();
            let _ = Csv::new().read(&path);
        },
    );
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

#[test]
fn images() {
    let valid = fixtures("png");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    let path = folder.path().join("a/x.png");
    let make = |rng: &mut pullback_fuzz::rng::Rng| {
        let mut bytes = damaged(rng, &valid);
        // Most damage is found by a checksum; half of the images get theirs anew.
        if rng.chance(0.5) {
            mend_checksums(&mut bytes);
        }
        bytes
    };
    feed("png", 4_000, make, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let _ = ImageFolder::open(folder.path()).unwrap().get(0);
        let _ = ImageFolder::open(folder.path()).unwrap().resize(4, 4).gray().get(0);
    });
}

/// Gives each chunk of a PNG the checksum that it should have.
fn mend_checksums(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u32::from_be_bytes(head[..4].try_into().unwrap()) as usize;
        let Some(end) = at.checked_add(8 + length).filter(|end| end + 4 <= bytes.len()) else {
            break;
        };
        let mut crc = !0u32;
        for &byte in &bytes[at + 4..end] {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
            }
        }
        bytes[end..end + 4].copy_from_slice(&(!crc).to_be_bytes());
        at = end + 4;
    }
}

#[test]
fn checkpoints_and_weights() {
    let model = Linear::new(3, 2);
    let root = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(root.path());
    let folder = checkpoints.save(&Checkpoint::of(&model).at(3, 1).metric("loss", 0.5)).unwrap();
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files {
        let whole = std::fs::read(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        feed(
            &name,
            4_000,
            |rng| damaged(rng, std::slice::from_ref(&whole)),
            |bytes| {
                std::fs::write(&file, bytes).unwrap();
                if let Ok(saved) = SavedCheckpoint::read(&folder) {
                    let _ = saved.restore_model(&model);
                }
                let _ = checkpoints.latest();
                let _ = Weights::new().strict(false).cast(true).load(&model, &file);
            },
        );
        std::fs::write(&file, whole).unwrap();
    }
    assert!(SavedCheckpoint::read(&folder).unwrap().restore_model(&model).is_ok());
}

#[test]
fn expressions() {
    const WORDS: &[&str] = &[
        "x",
        "y",
        "1",
        "2.5",
        ".5",
        "1e3",
        "1e",
        "1e999",
        "99999999999999999999",
        "(",
        ")",
        "[",
        "]",
        ",",
        ";",
        "=",
        "+",
        "-",
        "*",
        "/",
        "^",
        "**",
        "@",
        "<",
        ">=",
        "==",
        "!=",
        "!",
        "sin(",
        "sum(",
        "softmax(",
        "where(",
        "clamp(",
        "pi",
        "e",
        "nan",
        "inf",
        " ",
        "·",
        "−",
        "π",
        "é",
        "#",
        "\"",
        "..",
    ];
    let valid: Vec<Vec<u8>> =
        ["x*y + sin(x*y)", "sum(softmax(y))^2", "where(x > 0, x, -x) @ [1, 2; 3, 4]"]
            .map(|t| t.as_bytes().to_vec())
            .to_vec();
    let make = |rng: &mut pullback_fuzz::rng::Rng| match rng.below(20) {
        0 => "(".repeat(rng.below(5000)).into_bytes(),
        1 => "-".repeat(rng.below(5000)).into_bytes(),
        2 => "sin(".repeat(rng.below(3000)).into_bytes(),
        n if n < 10 => damaged(rng, &valid),
        _ => babble(rng, WORDS, 16).into_bytes(),
    };
    feed("expression", 40_000, make, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let inputs =
            vec![("x".to_string(), Tensor::from(0.5)), ("y".to_string(), Tensor::from([1.0, 2.0]))];
        if let Err(complaint) =
            expression::parse(&text).and_then(|p| expression::Graph::new(p, inputs))
        {
            assert!(complaint.span.end <= text.chars().count());
        }
    });
}

#[test]
fn einsum_equations() {
    const WORDS: &[&str] = &[
        "i", "j", "k", "ii", "ij", "jk", ",", "->", "...", "..", ".", " ", "A", "é", "1", "-", ">",
        "ijk", "\u{0}", "->->",
    ];
    let (a, b) = (Tensor::ones([2, 3]), Tensor::ones([3, 2]));
    let c = Tensor::ones([2, 2, 2]);
    let make = |rng: &mut pullback_fuzz::rng::Rng| match rng.below(30) {
        0 => "ij,".repeat(rng.below(2000)).into_bytes(),
        1 => (b'a'..=b'z').cycle().take(rng.below(3000)).collect(),
        _ => babble(rng, WORDS, 9).into_bytes(),
    };
    feed("einsum", 100_000, make, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = catch(|| einsum(&text, &[&a, &b]));
        let _ = catch(|| einsum(&text, &[&c]));
        let _ = catch(|| einsum(&text, &[]));
    });
}

/// The texts of the programs that random programs are.
fn programs() -> Vec<Vec<u8>> {
    let trace = |seed: u64| {
        let program = generate::program(seed, Switches::off());
        let f = function(&program);
        let specs: Vec<Spec> = program.first().iter().map(|x| x.spec().clone()).collect();
        let traced = catch(|| pullback::trace(|xs: &[Tensor]| f(&xs.to_vec()), &specs));
        traced.ok()?.ok().map(|p| p.to_string())
    };
    let found: Vec<Vec<u8>> = (0..60).filter_map(trace).map(String::into_bytes).collect();
    assert!(found.len() > 30);
    found
}

#[test]
fn program_texts() {
    let valid = programs();
    feed(
        "program",
        75_000,
        |rng| damaged(rng, &valid),
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(program) = text.parse::<Program>() {
                let again = program.to_string();
                assert_eq!(again.parse::<Program>().map(|p| p.to_string()).as_ref(), Ok(&again));
            }
        },
    );
}

#[test]
fn op_texts() {
    let valid: Vec<Vec<u8>> = Op::forms().map(|op| op.to_string().into_bytes()).collect();
    feed(
        "op",
        150_000,
        |rng| damaged(rng, &valid),
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(op) = text.parse::<Op>() {
                assert_eq!(op.to_string().parse::<Op>().as_ref(), Ok(&op), "{text}");
            }
            let _ = text.parse::<Spec>();
        },
    );
}
