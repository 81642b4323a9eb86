//! Readers of formats on anything: what was written is read back to the bit, and no bytes make a
//! reader panic.

use proptest::collection::vec;
use proptest::prelude::*;
use pullback::{DType, HostElement, Tensor};
use pullback_nn::data::{
    Csv, Dataset, ImageFolder, parse_idx, parse_npy, parse_npz, parse_safetensors, read_npz,
    read_safetensors, write_idx, write_npy, write_npz, write_safetensors,
};
use std::collections::BTreeMap;
use std::io::Cursor;

/// A shape of up to four axes and as many random bytes as its widest elements need.
fn array() -> impl Strategy<Value = (Vec<usize>, Vec<u64>)> {
    vec(0usize..5, 0..4).prop_flat_map(|shape| {
        let n = shape.iter().product::<usize>();
        (Just(shape), vec(any::<u64>(), n))
    })
}

/// The tensor of a dtype with these bits: any bits, NaNs too.
fn tensor(dtype: DType, shape: &[usize], bits: &[u64]) -> Tensor {
    fn make<T: HostElement>(shape: &[usize], bits: &[u64], f: impl Fn(u64) -> T) -> Tensor {
        Tensor::from_vec(bits.iter().map(|&b| f(b)).collect::<Vec<T>>(), shape)
    }
    match dtype {
        DType::F64 => make(shape, bits, f64::from_bits),
        DType::F32 => make(shape, bits, |b| f32::from_bits(b as u32)),
        DType::BF16 => make(shape, bits, |b| pullback::bf16::from_bits(b as u16)),
        DType::F16 => make(shape, bits, |b| pullback::f16::from_bits(b as u16)),
        DType::I64 => make(shape, bits, |b| b as i64),
        DType::I32 => make(shape, bits, |b| b as i32),
        DType::U8 => make(shape, bits, |b| b as u8),
        DType::Bool => make(shape, bits, |b| b % 2 == 1),
    }
}

/// The elements, to the bit.
fn bits(x: &Tensor) -> Vec<u64> {
    match x.dtype() {
        DType::F64 => x.to_vec::<f64>().into_iter().map(f64::to_bits).collect(),
        DType::F32 => x.to_vec::<f32>().into_iter().map(|v| v.to_bits().into()).collect(),
        DType::BF16 => {
            x.to_vec::<pullback::bf16>().into_iter().map(|v| v.to_bits().into()).collect()
        }
        DType::F16 => x.to_vec::<pullback::f16>().into_iter().map(|v| v.to_bits().into()).collect(),
        DType::I64 => x.to_vec::<i64>().into_iter().map(|v| v as u64).collect(),
        DType::I32 => x.to_vec::<i32>().into_iter().map(|v| v as u64).collect(),
        DType::U8 => x.to_vec::<u8>().into_iter().map(u64::from).collect(),
        DType::Bool => x.to_vec::<bool>().into_iter().map(u64::from).collect(),
    }
}

fn same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.spec(), b.spec());
    assert_eq!(bits(a), bits(b));
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/formats");
    std::fs::read(folder.join(name)).unwrap()
}

/// A file with some bytes replaced, and cut off somewhere.
fn damaged(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let whole = fixture(name);
    let n = whole.len();
    (vec((0..n, any::<u8>()), 0..6), 0..=n).prop_map(move |(changes, end)| {
        let mut bytes = whole.clone();
        changes.into_iter().for_each(|(i, byte)| bytes[i] = byte);
        bytes.truncate(end.max(n / 2));
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arrays_are_read_back((shape, random) in array(), dtype in prop::sample::select(DType::ALL.to_vec())) {
        let folder = tempfile::tempdir().unwrap();
        let x = tensor(dtype, &shape, &random);
        let path = folder.path().join("x");
        write_npy(&path, &x).unwrap();
        same(&parse_npy(&mut &std::fs::read(&path).unwrap()[..], "x").unwrap(), &x);
        for compressed in [false, true] {
            write_npz(&path, &[("a b/c", &x), ("", &x)], compressed).unwrap();
            let read = read_npz(&path).unwrap();
            prop_assert_eq!((&read[0].0[..], &read[1].0[..]), ("a b/c", ""));
            same(&read[0].1, &x);
        }
        let notes = BTreeMap::from([("k".to_string(), "\"v\"\n".to_string())]);
        write_safetensors(&path, &[("x.weight", &x), ("é", &x)], &notes).unwrap();
        let read = read_safetensors(&path).unwrap();
        same(read.get("x.weight").unwrap(), &x);
        same(read.get("é").unwrap(), &x);
        prop_assert_eq!(read.metadata, notes);
        if matches!(dtype, DType::U8 | DType::I32 | DType::F32 | DType::F64) {
            write_idx(&path, &x).unwrap();
            same(&parse_idx(&mut &std::fs::read(&path).unwrap()[..], "x").unwrap(), &x);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = parse_npy(&mut &bytes[..], "x");
        let _ = parse_npy(&mut &[b"\x93NUMPY\x01\0", &bytes[..]].concat()[..], "x");
        let _ = parse_idx(&mut &bytes[..], "x");
        let _ = parse_idx(&mut &[&[0, 0], &bytes[..]].concat()[..], "x");
        let _ = parse_npz(Cursor::new(&bytes), "x");
        let _ = parse_npz(Cursor::new([b"PK\x03\x04", &bytes[..]].concat()), "x");
        let _ = parse_safetensors(&bytes, "x");
        let _ = Csv::new().read_from(&bytes[..], "x");
        let _ = Csv::new().header(false).label("0").read_from(&bytes[..], "x");
        let _ = Csv::new().read_from(flate2::read::GzDecoder::new(&bytes[..]), "x");
    }

    #[test]
    fn no_header_makes_a_reader_panic(header in "[{}'\":,()0-9a-zA-Z <>|\\[\\]é-]{0,80}") {
        let mut npy = b"\x93NUMPY\x02\0".to_vec();
        npy.extend((header.len() as u32).to_le_bytes());
        npy.extend(header.as_bytes());
        let _ = parse_npy(&mut &npy[..], "x");
        let _ = parse_safetensors(&[&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat(), "x");
        let _ = Csv::new().read_from(header.as_bytes(), "x");
    }

    #[test]
    fn no_damage_makes_a_reader_panic(
        npy in damaged("fortran.npy"),
        idx in damaged("images.idx"),
        tensors in damaged("all.safetensors"),
        stored in damaged("stored.npz"),
        deflated in damaged("deflated.npz"),
        png in damaged("pixels.png"),
    ) {
        let _ = parse_npy(&mut &npy[..], "x");
        let _ = parse_idx(&mut &idx[..], "x");
        let _ = parse_safetensors(&tensors, "x");
        let _ = parse_npz(Cursor::new(stored), "x");
        let _ = parse_npz(Cursor::new(deflated), "x");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/x.png"), png).unwrap();
        let _ = ImageFolder::open(folder.path()).unwrap().get(0);
    }
}
