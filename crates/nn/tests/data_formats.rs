//! The formats: what others wrote is read, what is written is read back, and what is damaged is
//! refused with a sentence.

use pullback::{DType, Tensor};
use pullback_nn::data::{
    Csv, DataLoader, Dataset, ImageFolder, Missing, Pixels, parse_idx, parse_npy, parse_npz,
    parse_safetensors, read_idx, read_npy, read_npz, read_safetensors, write_idx, write_npy,
    write_npz, write_safetensors,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/formats").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(file("expected.json")).unwrap()).unwrap()
}

#[track_caller]
fn same(x: &Tensor, expected: &Value, name: &str) {
    let numbers = |value: &Value| -> Vec<f64> { serde_json::from_value(value.clone()).unwrap() };
    assert_eq!(x.dtype().name(), expected["dtype"], "{name}");
    assert_eq!(
        x.shape().iter().map(|&n| n as f64).collect::<Vec<_>>(),
        numbers(&expected["shape"]),
        "{name}"
    );
    assert_eq!(x.to_f64_vec(), numbers(&expected["values"]), "{name}");
}

#[test]
fn everything_that_numpy_and_others_wrote_is_read() {
    let expected = expected();
    let mut seen = 0;
    for (name, what) in expected.as_object().unwrap() {
        let read = |(file_name, part): (&str, &str)| match file_name.rsplit_once('.').unwrap().1 {
            "npz" => {
                let arrays = read_npz(file(file_name)).unwrap();
                arrays.into_iter().find(|(known, _)| known == part).unwrap().1
            }
            _ => read_safetensors(file(file_name)).unwrap().get(part).unwrap().clone(),
        };
        let x = match name.rsplit_once('.').unwrap().1 {
            "npy" => read_npy(file(name)).unwrap(),
            "idx" => read_idx(file(name)).unwrap(),
            "png" => continue,
            _ => read(name.split_once('/').unwrap()),
        };
        same(&x, what, name);
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
    let named = read_safetensors(file("all.safetensors")).unwrap();
    assert_eq!(named.metadata["made_by"], "make.py");
    assert_eq!(named.tensors.len(), 10);
    assert!(named.get("nobody").is_none());
    let names: Vec<String> =
        read_npz(file("stored.npz")).unwrap().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn pictures_are_read_in_sorted_classes() {
    let folder = tempfile::tempdir().unwrap();
    let png = std::fs::read(file("pixels.png")).unwrap();
    for name in ["cat/2.png", "cat/1.PNG", "ant/deep/x.png"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &png).unwrap();
    }
    std::fs::write(folder.path().join("cat/notes.txt"), "not a picture").unwrap();
    let open = || ImageFolder::open(folder.path()).unwrap();
    let images = open().pixels(Pixels::Bytes);
    assert_eq!(images.classes(), ["ant", "cat"]);
    assert_eq!(images.len(), 3);
    assert!(images.files()[1].0.ends_with("cat/1.PNG"));
    let (x, class) = images.get(2).unwrap();
    assert_eq!(class, 1);
    same(&x, &expected()["pixels.png"], "pixels.png");

    let unit = open().get(0).unwrap().0;
    assert_eq!(unit.to_vec::<f32>()[..3], [1.0, 0.0, 0.0]);
    let normal = Pixels::Normalised { mean: vec![0.5, 0.25, 0.0], std: vec![0.5, 0.25, 2.0] };
    let normal = open().pixels(normal).get(0).unwrap().0.to_vec::<f32>();
    assert_eq!(normal[..3], [1.0, -1.0, -1.0]);
    assert_eq!(normal[6..9], [-1.0, 3.0, -1.0]);
    assert_eq!(normal[12..15], [0.0, 0.0, 0.5]);
    assert_eq!(open().gray().resize(4, 5).get(0).unwrap().0.shape(), [1, 4, 5]);
    let text = open().gray().pixels(Pixels::Normalised { mean: vec![0.0; 3], std: vec![1.0; 3] });
    assert!(text.get(0).unwrap_err().to_string().contains("for each of 1 channels"));

    let (x, y) =
        DataLoader::new(open()).batch_size(3).num_workers(2).iter().next().unwrap().unwrap();
    assert_eq!((x.shape(), y.to_vec::<i64>()), (&[3, 3, 2, 3][..], vec![0, 1, 1]));

    // A broken file is named, and by the loader as an item.
    std::fs::write(folder.path().join("cat/2.png"), &png[..40]).unwrap();
    let text = open().get(2).unwrap_err().to_string();
    assert!(text.contains("2.png"), "{text}");
    let last =
        DataLoader::new(open()).num_workers(1).iter().last().unwrap().err().unwrap().to_string();
    assert!(last.contains("item 2 failed") && last.contains("2.png"), "{last}");

    std::fs::create_dir(folder.path().join("dog")).unwrap();
    let text = ImageFolder::open(folder.path()).err().unwrap().to_string();
    assert!(text.contains("dog") && text.contains("no image"), "{text}");
    assert!(
        ImageFolder::open(folder.path().join("dog"))
            .err()
            .unwrap()
            .to_string()
            .contains("no folder")
    );
    assert!(
        ImageFolder::open(folder.path().join("nowhere"))
            .err()
            .unwrap()
            .to_string()
            .contains("nowhere")
    );
}

#[test]
fn a_picture_that_would_not_fit_is_refused() {
    // A PNG header of 60,000 by 60,000 pixels of 16 bits, and nothing else: 28 GB.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    let mut ihdr = b"IHDR".to_vec();
    ihdr.extend(60_000u32.to_be_bytes());
    ihdr.extend(60_000u32.to_be_bytes());
    ihdr.extend([16, 6, 0, 0, 0]);
    let mut crc = flate2::Crc::new();
    crc.update(&ihdr);
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0d".to_vec();
    png.extend(&ihdr);
    png.extend(crc.sum().to_be_bytes());
    png.extend(b"\0\0\0\x01IDAT\x78");
    std::fs::write(folder.path().join("a/huge.png"), png).unwrap();
    let text = ImageFolder::open(folder.path()).unwrap().get(0).unwrap_err().to_string();
    assert!(text.contains("huge.png"), "{text}");
}

#[test]
fn csv_columns_labels_and_types() {
    let text = "id; size ;colour;kind\n1;2.5;red;cat\n2;-1e3;blue;dog\n3;0;red;cat\n";
    let csv =
        Csv::new().delimiter(b';').columns(["size", "colour"]).category("colour").label("kind");
    let table = csv.dtype(DType::F64).read_from(text.as_bytes(), "pets.csv").unwrap();
    assert_eq!(table.features.to_vec::<f64>(), [2.5, 1.0, -1000.0, 0.0, 0.0, 1.0]);
    assert_eq!(
        table.categories,
        [("colour".to_string(), vec!["blue".to_string(), "red".to_string()])]
    );
    assert_eq!(table.labels.as_ref().unwrap().to_vec::<i64>(), [0, 1, 0]);
    assert_eq!(table.classes, ["cat", "dog"]);
    assert_eq!(table.into_dataset().unwrap().len(), 3);

    let target = Csv::new().target("y").read_from("x,y\n1,0.5\n2,1.5\n".as_bytes(), "t").unwrap();
    assert_eq!(target.labels.unwrap().to_vec::<f32>(), [0.5, 1.5]);
    // Numbers as they are, however they are written; names are sorted, and among them 10 comes
    // before 2.
    let whole =
        Csv::new().label("y").read_from("x,y\n1,10.0\n2,2\n3,-1e1\n".as_bytes(), "t").unwrap();
    assert_eq!(whole.labels.unwrap().to_vec::<i64>(), [10, 2, -10]);
    assert!(whole.classes.is_empty());
    let names = Csv::new().label("y").read_from("x,y\n1,10.5\n2,2\n".as_bytes(), "t").unwrap();
    assert_eq!(names.classes, ["10.5", "2"]);
    let plain = Csv::new().header(false).read_from("1,2\n3,4\n".as_bytes(), "t").unwrap();
    assert_eq!(plain.columns, ["0", "1"]);
    assert!(plain.into_dataset().is_err());
    let empty = Csv::new().read_from("a,b\n".as_bytes(), "t").unwrap();
    assert_eq!(empty.features.shape(), [0, 2]);
}

#[test]
fn csv_says_what_is_wrong_and_where() {
    let error =
        |csv: Csv, text: &str| csv.read_from(text.as_bytes(), "t.csv").err().unwrap().to_string();
    let text = error(Csv::new(), "a,b\n1,2\n3,four\n");
    assert!(text.contains("t.csv: line 3, column `b`: `four` is not a number"), "{text}");
    let text = error(Csv::new(), "a,b\n1,2\n3\n");
    assert!(text.contains("t.csv") && text.contains("line: 3"), "{text}");
    let text = error(Csv::new(), "a,b\n\n1,NA\n");
    assert!(text.contains("line 3, column `b`: the value is missing"), "{text}");
    let text = error(Csv::new().label("c"), "a,b\n1,2\n");
    assert!(text.contains("no column `c`; the columns are a, b"), "{text}");
    let text = error(Csv::new().label("b"), "a,b\n1,x\n2,\n");
    assert!(text.contains("line 3, column `b`: the class is missing"), "{text}");
    assert!(error(Csv::new(), "").contains("nothing in it"));
    assert!(error(Csv::new().dtype(DType::I64), "a\n1\n").contains("features are floats"));
    assert!(error(Csv::new().missing(Missing::Mean), "a\n?\n").contains("no value is there"));
    let text = Csv::new().read("no/such/file.csv").err().unwrap().to_string();
    assert!(text.contains("no/such/file.csv"), "{text}");

    let holes = "a,b\n1,\n3,4\n,8\n";
    let filled = |missing| {
        let table = Csv::new().missing(missing).read_from(holes.as_bytes(), "t").unwrap();
        table.features.to_vec::<f32>()
    };
    assert_eq!(filled(Missing::Fill(-1.0)), [1.0, -1.0, 3.0, 4.0, -1.0, 8.0]);
    assert_eq!(filled(Missing::Mean), [1.0, 6.0, 3.0, 4.0, 2.0, 8.0]);
}

#[test]
fn csv_is_written_and_read_back_also_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let x = Tensor::from([[0.1f32, -2.5e-20], [f32::MAX, 1.0]]);
    for name in ["t.csv", "t.csv.gz"] {
        let path = folder.path().join(name);
        Csv::new().write(&path, &["a", "b"], &x).unwrap();
        let table = Csv::new().read(&path).unwrap();
        assert_eq!(table.columns, ["a", "b"]);
        assert_eq!(table.features.to_vec::<f32>(), x.to_vec::<f32>());
    }
    assert_eq!(std::fs::read(folder.path().join("t.csv.gz")).unwrap()[..2], [0x1f, 0x8b]);
    assert!(Csv::new().write(folder.path().join("u.csv"), &["a"], &x).is_err());
    // Cut off in the middle of the compressed bytes.
    let whole = std::fs::read(folder.path().join("t.csv.gz")).unwrap();
    std::fs::write(folder.path().join("cut.csv.gz"), &whole[..whole.len() - 10]).unwrap();
    let text = Csv::new().read(folder.path().join("cut.csv.gz")).err().unwrap().to_string();
    assert!(text.contains("cut.csv.gz"), "{text}");
}

fn every_dtype() -> Vec<Tensor> {
    let x = Tensor::from([[0.0, 1.0, 2.5], [-3.0, 100.0, 5.0]]);
    DType::ALL.into_iter().map(|dtype| x.abs().cast(dtype)).collect()
}

#[test]
fn every_dtype_is_written_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for x in every_dtype() {
        let same = |y: &Tensor| {
            assert_eq!(
                (y.spec().to_string(), y.to_f64_vec()),
                (x.spec().to_string(), x.to_f64_vec())
            );
        };
        write_npy(path("x.npy"), &x).unwrap();
        same(&read_npy(path("x.npy")).unwrap());
        // Of another layout than the elements are written in.
        write_npy(path("t.npy"), &x.t()).unwrap();
        same(&read_npy(path("t.npy")).unwrap().t());
        write_safetensors(path("x.safetensors"), &[("x", &x)], &BTreeMap::new()).unwrap();
        same(read_safetensors(path("x.safetensors")).unwrap().get("x").unwrap());
        match x.dtype() {
            DType::U8 | DType::I32 | DType::F32 | DType::F64 => {
                for name in ["x.idx", "x.idx.gz"] {
                    write_idx(path(name), &x).unwrap();
                    same(&read_idx(path(name)).unwrap());
                }
            }
            dtype => {
                let text = write_idx(path("x.idx"), &x).unwrap_err().to_string();
                assert!(text.contains(dtype.name()), "{text}");
            }
        }
    }
    let all = every_dtype();
    let named: Vec<(&str, &Tensor)> = all.iter().map(|x| (x.dtype().name(), x)).collect();
    for compressed in [false, true] {
        write_npz(path("all.npz"), &named, compressed).unwrap();
        let read = read_npz(path("all.npz")).unwrap();
        assert_eq!(read.len(), named.len());
        for ((a, x), (b, y)) in named.iter().zip(&read) {
            assert_eq!((*a, x.spec(), x.to_f64_vec()), (b.as_str(), y.spec(), y.to_f64_vec()));
        }
    }
    let twice = [named[0], named[0]];
    assert!(
        write_npz(path("t.npz"), &twice, false)
            .unwrap_err()
            .to_string()
            .contains("`f64` comes twice")
    );
    let notes = BTreeMap::new();
    assert!(
        write_safetensors(path("t"), &twice, &notes).unwrap_err().to_string().contains("twice")
    );
}

#[test]
fn what_is_written_is_what_numpy_writes() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["version1.npy", "scalar.npy", "vector.npy", "empty.npy"] {
        let path = folder.path().join(name);
        write_npy(&path, &read_npy(file(name)).unwrap()).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(file(name)).unwrap(), "{name}");
    }
}

#[test]
fn files_cut_off_anywhere_are_refused() {
    let npy = std::fs::read(file("version1.npy")).unwrap();
    for n in 0..npy.len() {
        let text = parse_npy(&mut &npy[..n], "cut.npy").unwrap_err().to_string();
        assert!(text.starts_with("npy: cut.npy: "), "{text}");
    }
    let idx = std::fs::read(file("images.idx")).unwrap();
    for n in 0..idx.len() {
        assert!(parse_idx(&mut &idx[..n], "cut.idx").is_err());
    }
    let tensors = std::fs::read(file("all.safetensors")).unwrap();
    for n in 0..tensors.len() {
        assert!(parse_safetensors(&tensors[..n], "cut").is_err());
    }
    for name in ["stored.npz", "deflated.npz"] {
        let npz = std::fs::read(file(name)).unwrap();
        for n in 0..npz.len() {
            assert!(parse_npz(Cursor::new(&npz[..n]), "cut").is_err());
        }
    }
}

#[test]
fn flipped_bits_in_an_archive_are_noticed() {
    let npz = std::fs::read(file("deflated.npz")).unwrap();
    let whole = parse_npz(Cursor::new(&npz), "whole").unwrap();
    let values = |arrays: &[(String, Tensor)]| -> Vec<_> {
        arrays.iter().map(|(n, x)| (n.clone(), x.to_f64_vec())).collect()
    };
    // The compressed bytes of the first array.
    for i in 60..150 {
        let mut damaged = npz.clone();
        damaged[i] ^= 0x10;
        if let Ok(arrays) = parse_npz(Cursor::new(&damaged), "damaged") {
            assert_eq!(values(&arrays), values(&whole), "byte {i} was changed unnoticed");
        }
    }
}

/// An .npy file with this header and no elements.
fn npy_with(header: &str) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x02\0".to_vec();
    out.extend((header.len() as u32).to_le_bytes());
    out.extend(header.as_bytes());
    out
}

fn safetensors_with(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn headers_that_promise_too_much_take_no_memory() {
    let npy =
        |header: &str| parse_npy(&mut &npy_with(header)[..], "h.npy").unwrap_err().to_string();
    let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 10), }";
    assert!(npy(huge).contains("it ends after 0 of 80000000000000 bytes"), "{}", npy(huge));
    let absurd = "{'descr': '<f8', 'fortran_order': True, 'shape': (18446744073709551615, 0), }";
    assert!(npy(absurd).contains("is larger than memory"), "{}", npy(absurd));
    let overflow =
        "{'descr': '<f8', 'fortran_order': True, 'shape': (4294967296, 4294967296, 0), }";
    assert!(npy(overflow).contains("is larger than memory"));
    let many =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}), }}", "1, ".repeat(1000));
    assert!(npy(&many).contains("1000 axes"));
    let mut long = b"\x93NUMPY\x02\0".to_vec();
    long.extend([0xff; 4]);
    assert!(parse_npy(&mut &long[..], "l").unwrap_err().to_string().contains("4294967295 bytes"));

    // 255 axes of four thousand million each.
    let idx = [&[0, 0, 8, 255][..], &[0xff; 1020]].concat();
    assert!(parse_idx(&mut &idx[..], "i").unwrap_err().to_string().contains("255 axes"));
    let idx = [&[0, 0, 8, 2][..], &[0x0f; 8]].concat();
    assert!(parse_idx(&mut &idx[..], "i").unwrap_err().to_string().contains("it ends after 0 of"));

    let tensors = |header: &str, data: &[u8]| {
        parse_safetensors(&safetensors_with(header, data), "s").err().unwrap().to_string()
    };
    let text =
        tensors(r#"{"w":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,8]}}"#, &[0; 8]);
    assert!(
        text.contains("tensor `w`: 8 bytes are not those of F32 of shape [1000000, 1000000]"),
        "{text}"
    );
    let text = tensors(
        r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
        &[0; 8],
    );
    assert!(text.contains("tensor `w`"), "{text}");
    let text = tensors(
        r#"{"w":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}}"#,
        &[],
    );
    assert!(text.contains("tensor `w`"), "{text}");
    let text = tensors(r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, &[0; 12]);
    assert!(text.contains("tensor `w`"), "{text}");
    let text = tensors(r#"{"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}"#, &[0; 2]);
    assert!(text.contains("tensor `w`") && text.contains("F8_E4M3"), "{text}");
    let text = tensors(r#"{"w":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}"#, &[1, 2]);
    assert!(text.contains("tensor `w`: element 1 is the byte 2"), "{text}");
    let text = tensors(r#"{"w":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}}"#, &[255; 8]);
    assert!(text.contains("tensor `w`: element 0 exceeds the range of i64"), "{text}");
    let text = parse_safetensors(&[255; 16], "s").err().unwrap().to_string();
    assert!(text.contains("header"), "{text}");
}

#[test]
fn wrong_headers_are_named() {
    let npy =
        |header: &str| parse_npy(&mut &npy_with(header)[..], "h.npy").unwrap_err().to_string();
    let cases = [
        ("{'descr': '<c8', 'fortran_order': False, 'shape': (), }", "`<c8`"),
        ("{'descr': '<f3', 'fortran_order': False, 'shape': (), }", "`<f3`"),
        ("{'descr': 'é', 'fortran_order': False, 'shape': (), }", "`é`"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }", "in quotes"),
        ("{'descr': '<f4', 'shape': (), }", "no `fortran_order`"),
        ("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (), }", "True or False"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
            "a length is missing before `-1",
        ),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", "`(` is missing"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,) ", "`}` is missing"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (), } more", "left over"),
        ("{'colour': 'red', }", "`colour` is not known"),
        ("", "`{` is missing"),
    ];
    for (header, part) in cases {
        assert!(npy(header).contains(part), "{header}: {}", npy(header));
    }
    let text = parse_npy(&mut &b"\x93NUMPY\x09\0........"[..], "v").unwrap_err().to_string();
    assert!(text.contains("version 9"), "{text}");
    let text = parse_npy(&mut &b"PK\x03\x04 not an array"[..], "z.npy").unwrap_err().to_string();
    assert!(text.contains("z.npy: it does not start as"), "{text}");
    assert!(
        parse_idx(&mut &[1, 2, 8, 1][..], "i").unwrap_err().to_string().contains("two zero bytes")
    );
    assert!(parse_idx(&mut &[0, 0, 7, 1][..], "i").unwrap_err().to_string().contains("0x07"));
    let more = [&std::fs::read(file("images.idx")).unwrap()[..], &[0]].concat();
    assert!(parse_idx(&mut &more[..], "i").unwrap_err().to_string().contains("bytes follow"));
    let text = read_npy("no/such.npy").unwrap_err().to_string();
    assert!(text.contains("no/such.npy"), "{text}");
}

#[test]
fn a_compressed_stream_may_have_several_members() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(file("images.idx")).unwrap();
    let zip = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let path = folder.path().join("two.idx.gz");
    std::fs::write(&path, [zip(&whole[..9]), zip(&whole[9..])].concat()).unwrap();
    assert_eq!(read_idx(&path).unwrap().shape(), [2, 3, 4]);
}
