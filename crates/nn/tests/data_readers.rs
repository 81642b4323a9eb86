//! Data sets from local files: MNIST, CIFAR, image folders, text, JSON lines. Damaged and missing
//! files are errors that say what was expected and what was found.

use pullback::{DType, Tensor};
use pullback_nn::data::transforms::{RandomHorizontalFlip, Resize, Transform};
use pullback_nn::data::{
    ByteTokens, CharTokens, Cifar10, Cifar100, DataLoader, Dataset, FieldKind, ImageFolder,
    JsonLines, Mnist, Pixels, TextDataset, write_idx,
};
use std::path::Path;

#[track_caller]
fn refused<T>(result: pullback::Result<T>, parts: &[&str]) {
    let text = result.err().expect("it was accepted").to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

fn mnist(folder: &Path, part: &str, ending: &str, n: usize) {
    let images = (Tensor::arange(0, n as i64 * 784) % 256).cast(DType::U8).reshape([n, 28, 28]);
    let labels = (Tensor::arange(0, n as i64) % 10).cast(DType::U8);
    write_idx(folder.join(format!("{part}-images-idx3-ubyte{ending}")), &images).unwrap();
    write_idx(folder.join(format!("{part}-labels-idx1-ubyte{ending}")), &labels).unwrap();
}

#[test]
fn mnist_is_found_where_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    mnist(root, "train", ".gz", 12);
    let data = Mnist::open(root, true).unwrap();
    assert_eq!((data.len(), data.classes().len()), (12, 10));
    assert_eq!((data.images().shape(), data.labels().shape()), (&[12, 28, 28][..], &[12][..]));
    let (image, label) = data.get(11).unwrap();
    assert_eq!((image.shape(), image.dtype(), label), (&[1, 28, 28][..], DType::F32, 1));
    assert_eq!(image.max().item::<f32>(), 1.0);
    assert!(data.get(12).is_err());
    let (x, y) = DataLoader::new(data).batch_size(4).iter().next().unwrap().unwrap();
    assert_eq!((x.shape(), y.to_vec::<i64>()), (&[4, 1, 28, 28][..], vec![0, 1, 2, 3]));

    // As torchvision leaves them, for all three.
    for name in ["MNIST", "FashionMNIST", "KMNIST"] {
        let raw = root.join(name).join("raw");
        std::fs::create_dir_all(&raw).unwrap();
        mnist(&raw, "t10k", "", 3);
    }
    assert_eq!(Mnist::open(root, false).unwrap().len(), 3);
    assert_eq!(Mnist::open_fashion(root, false).unwrap().classes()[9], "Ankle boot");
    assert_eq!(Mnist::open_kmnist(root, false).unwrap().classes()[0], "o");
    // With a dot in place of a dash.
    let other = tempfile::tempdir().unwrap();
    mnist(other.path(), "train", "", 2);
    for what in ["images-idx3", "labels-idx1"] {
        let (from, to) =
            (format!("train-{what}-ubyte"), format!("train-{what}-ubyte").replace("-idx", ".idx"));
        std::fs::rename(other.path().join(from), other.path().join(to)).unwrap();
    }
    assert_eq!(Mnist::open(other.path(), true).unwrap().len(), 2);
}

#[test]
fn damaged_mnist_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    refused(Mnist::open(root, true), &["no train-images-idx3-ubyte", "MNIST/raw"]);
    refused(Mnist::open_kmnist(root, false), &["no t10k-images-idx3-ubyte", "KMNIST/raw"]);
    let (images, labels) =
        (root.join("train-images-idx3-ubyte"), root.join("train-labels-idx1-ubyte"));
    mnist(root, "train", "", 4);
    let whole = std::fs::read(&images).unwrap();
    std::fs::write(&images, &whole[..whole.len() - 5]).unwrap();
    refused(Mnist::open(root, true), &["train-images-idx3-ubyte", "3131 of 3136 bytes"]);
    std::fs::write(&images, [&whole[..], &[0]].concat()).unwrap();
    refused(Mnist::open(root, true), &["bytes follow"]);
    write_idx(&images, &Tensor::zeros([4, 28])).unwrap();
    refused(Mnist::open(root, true), &["u8[n, h, w]", "f32[4,28]"]);
    std::fs::write(&images, &whole).unwrap();
    write_idx(&labels, &Tensor::from([1u8, 2])).unwrap();
    refused(Mnist::open(root, true), &["2 labels", "4 images"]);
    write_idx(&labels, &Tensor::from([1u8, 2, 3, 11])).unwrap();
    refused(Mnist::open(root, true), &["label 3 is 11"]);
    write_idx(&labels, &Tensor::zeros_with([4, 1], DType::U8)).unwrap();
    refused(Mnist::open(root, true), &["u8[n]", "u8[4,1]"]);
    // A compressed file that is cut off.
    let other = tempfile::tempdir().unwrap();
    mnist(other.path(), "train", ".gz", 4);
    let path = other.path().join("train-images-idx3-ubyte.gz");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    refused(Mnist::open(other.path(), true), &["train-images-idx3-ubyte.gz"]);
}

/// A record of CIFAR: its labels, and a value for each of red, green and blue.
fn record(labels: &[u8], colours: [u8; 3]) -> Vec<u8> {
    let pixels = colours.map(|value| vec![value; 1024]).concat();
    [labels, &pixels].concat()
}

#[test]
fn cifar_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("cifar-10-batches-bin");
    std::fs::create_dir(&inner).unwrap();
    for i in 1..=5u8 {
        let bytes = [record(&[i], [0, 51, 255]), record(&[i + 1], [1, 2, 3])].concat();
        std::fs::write(inner.join(format!("data_batch_{i}.bin")), bytes).unwrap();
    }
    std::fs::write(inner.join("test_batch.bin"), record(&[9], [9, 9, 9])).unwrap();
    for root in [folder.path(), &inner] {
        let train = Cifar10::open(root, true).unwrap();
        assert_eq!(train.labels(), [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]);
        let (image, label) = train.get(4).unwrap();
        assert_eq!((image.shape(), label), (&[3, 32, 32][..], 3));
        let colours = image.mean_over([1, 2]).to_vec::<f32>();
        assert!((colours[1] - 0.2).abs() < 1e-6 && (colours[2] - 1.0).abs() < 1e-6);
        assert_eq!(Cifar10::open(root, false).unwrap().len(), 1);
        assert_eq!(train.classes()[9], "truck");
        assert!(train.get(10).is_err());
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let both = [record(&[3, 42], [0, 0, 0]), record(&[19, 99], [0, 0, 0])].concat();
    std::fs::write(root.join("train.bin"), &both).unwrap();
    std::fs::write(root.join("test.bin"), &both).unwrap();
    let data = Cifar100::open(root, true).unwrap();
    assert_eq!((data.labels(), data.classes()[42].as_str()), (&[42, 99][..], "42"));
    let names = |n: usize| (0..n).map(|i| format!("name {i}\n")).collect::<String>();
    std::fs::write(root.join("coarse_label_names.txt"), names(20)).unwrap();
    std::fs::write(root.join("fine_label_names.txt"), names(100)).unwrap();
    let data = Cifar100::open(root, false).unwrap().coarse();
    assert_eq!((data.get(1).unwrap().1, data.classes()[19].as_str()), (19, "name 19"));
    std::fs::write(root.join("fine_label_names.txt"), names(7)).unwrap();
    refused(Cifar100::open(root, false), &["fine_label_names.txt", "7 classes", "100"]);
}

#[test]
fn damaged_cifar_is_refused_and_pickles_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    refused(Cifar10::open(root, true), &["test_batch.bin", "cifar-10-binary.tar.gz"]);
    refused(Cifar100::open(root, true), &["test.bin", "cifar-100-binary.tar.gz"]);
    std::fs::write(root.join("cifar-100-binary.tar.gz"), b"x").unwrap();
    refused(Cifar100::open(root, true), &["not unpacked", "tar xf"]);
    std::fs::create_dir(root.join("cifar-10-batches-py")).unwrap();
    let words = ["Python version of CIFAR-10", "pickles", "cifar-10-binary.tar.gz"];
    refused(Cifar10::open(root, true), &words);
    let inner = tempfile::tempdir().unwrap();
    std::fs::write(inner.path().join("test_batch"), b"\x80\x02").unwrap();
    refused(Cifar10::open(inner.path(), true), &words);
    std::fs::write(inner.path().join("test"), b"\x80\x02").unwrap();
    refused(Cifar100::open(inner.path(), true), &["Python version of CIFAR-100"]);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test_batch.bin");
    let whole = record(&[9], [9, 9, 9]);
    std::fs::write(&file, [&whole[..], &whole[..100]].concat()).unwrap();
    refused(
        Cifar10::open(folder.path(), false),
        &["test_batch.bin", "3073 bytes", "1 records and 100 bytes"],
    );
    std::fs::write(&file, b"").unwrap();
    refused(Cifar10::open(folder.path(), false), &["the file has 0"]);
    std::fs::write(&file, [whole.clone(), record(&[10], [0, 0, 0])].concat()).unwrap();
    refused(Cifar10::open(folder.path(), false), &["record 1", "offset 3073", "is 10"]);
    std::fs::write(&file, whole).unwrap();
    refused(Cifar10::open(folder.path(), true), &["data_batch_1.bin"]);
}

#[test]
fn image_folders_have_extensions_classes_and_transforms() {
    let folder = tempfile::tempdir().unwrap();
    for (class, count) in [("cat", 2), ("dog", 1)] {
        let inner = folder.path().join(class);
        std::fs::create_dir(&inner).unwrap();
        for i in 0..count {
            let mut picture = image::RgbImage::new(6, 4);
            picture.put_pixel(0, 0, image::Rgb([255, 0, 0]));
            picture.save(inner.join(format!("{i}.png"))).unwrap();
        }
        std::fs::copy(inner.join("0.png"), inner.join("0.picture")).unwrap();
    }
    let all = ImageFolder::open(folder.path()).unwrap();
    assert_eq!((all.len(), all.targets()), (3, vec![0, 0, 1]));
    assert_eq!(all.class_to_idx()["dog"], 1);
    let chosen = ImageFolder::with_extensions(folder.path(), &[".picture"]).unwrap();
    assert_eq!((chosen.len(), chosen.targets()), (2, vec![0, 1]));
    refused(ImageFolder::with_extensions(folder.path(), &["webp"]), &["cat", "webp"]);
    let flipped = all
        .pixels(Pixels::Bytes)
        .transform(RandomHorizontalFlip::new(1.0).then(Resize::new((4, 6))));
    assert_eq!(flipped.dataset().len(), 3);
    let (image, class) = flipped.get(2).unwrap();
    assert_eq!((image.shape(), class), (&[3, 4, 6][..], 1));
    assert_eq!(image.to_vec::<u8>()[..6], [0, 0, 0, 0, 0, 255]);
    let (x, y) =
        DataLoader::new(flipped).batch_size(3).num_workers(2).iter().next().unwrap().unwrap();
    assert_eq!((x.shape(), y.shape()), (&[3, 3, 4, 6][..], &[3][..]));
}

#[test]
fn texts_are_blocks_of_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.txt");
    std::fs::write(&path, "abcdefg").unwrap();
    let chars = CharTokens::of("abcdefg");
    let data = TextDataset::open(&path, &chars, 3).unwrap();
    assert_eq!((data.len(), data.tokens().len()), (2, 7));
    assert_eq!(data.get(1).unwrap().to_vec::<i64>(), [3, 4, 5]);
    assert!(data.get(2).is_err());
    let batch = DataLoader::new(data).batch_size(2).iter().next().unwrap().unwrap();
    assert_eq!(batch.to_vec::<i64>(), Vec::from_iter(0..6));
    let pairs = TextDataset::open(&path, &chars, 3).unwrap().windows().unwrap();
    assert_eq!(pairs.get(1).unwrap().1.to_vec::<i64>(), [4, 5, 6]);
    refused(TextDataset::open(&path, &chars, 8), &["t.txt", "7 tokens", "block of 8"]);
    refused(TextDataset::open(&path, &chars, 0), &["block of 0"]);
    refused(TextDataset::open(&path, &CharTokens::of("abc"), 3), &["t.txt", "'d', character 3"]);
    refused(TextDataset::open(folder.path().join("none.txt"), &ByteTokens, 3), &["none.txt"]);
    assert!(TextDataset::open(&path, &ByteTokens, 7).unwrap().windows().is_err());
}

#[test]
fn json_lines_become_tensors_and_texts() {
    let text = r#"{"id": 1, "name": "é", "x": [[1, 2], [3, 4.5]], "ok": true, "more": [1]}

{"id": 2, "name": "", "x": [[0, 0], [0, 0]], "ok": false, "more": [2]}
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.jsonl");
    std::fs::write(&path, text).unwrap();
    let data = JsonLines::new().open(&path).unwrap();
    assert_eq!(data.len(), 2);
    let kinds = data.fields().iter().map(|(name, kind)| (name.as_str(), *kind));
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [
            ("id", FieldKind::Tensor(DType::I64)),
            ("name", FieldKind::Text),
            ("x", FieldKind::Tensor(DType::F32)),
            ("ok", FieldKind::Tensor(DType::Bool)),
            ("more", FieldKind::Tensor(DType::I64)),
        ]
    );
    let item = data.get(0).unwrap();
    assert_eq!(item["name"].text().unwrap(), "é");
    assert_eq!(item["x"].tensor().unwrap().spec().to_string(), "f32[2,2]");
    assert!(item["name"].tensor().is_err() && item["x"].text().is_err());
    assert!(data.get(2).is_err());
    let batch = DataLoader::new(data).batch_size(2).iter().next().unwrap().unwrap();
    assert_eq!(batch["id"].tensor().unwrap().to_vec::<i64>(), [1, 2]);
    assert_eq!(batch["ok"].tensor().unwrap().to_vec::<bool>(), [true, false]);
    assert_eq!(batch["name"].texts().unwrap(), ["é", ""]);
    assert!(batch["name"].tensor().is_err() && batch["id"].texts().is_err());

    // Compressed, with chosen fields and dtypes.
    let zipped = folder.path().join("d.jsonl.gz");
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
    std::fs::write(&zipped, out.finish().unwrap()).unwrap();
    let data = JsonLines::new().tensor("id", DType::F64).text("name").open(&zipped).unwrap();
    let item = data.get(1).unwrap();
    assert_eq!((item.len(), item["id"].tensor().unwrap().item::<f64>()), (2, 2.0));
    assert_eq!(JsonLines::new().read_from(&b""[..], "e").unwrap().len(), 0);
}

#[test]
fn json_lines_say_where_they_are_wrong() {
    let read = |text: &str| JsonLines::new().read_from(text.as_bytes(), "d.jsonl");
    refused(read("{\"a\": 1}\n{\"a\": 2"), &["d.jsonl", "line 2", "not JSON", "column"]);
    refused(read("{\"a\": 1}\n\n[1]"), &["line 3", "an object is expected, not a list"]);
    refused(read("{\"a\": 1}\n{\"b\": 1}"), &["line 2", "field `a`", "missing"]);
    refused(read("{\"a\": 1}\n{\"a\": \"x\"}"), &["line 2", "field `a`", "not a string"]);
    refused(read("{\"a\": \"x\"}\n{\"a\": 1}"), &["line 2", "a string is expected, not a number"]);
    refused(read("{\"a\": [[1], [2, 3]]}"), &["line 1", "field `a`", "1 and 2"]);
    refused(read("{\"a\": [1, [2]]}"), &["evenly"]);
    refused(read("{\"a\": [[1], 2]}"), &["a list is expected, not a number"]);
    refused(read("{\"a\": {\"b\": 1}}"), &["not an object"]);
    refused(read("{\"a\": null}"), &["not null"]);
    let bytes = JsonLines::new().tensor("a", DType::U8);
    refused(bytes.read_from(&b"{\"a\": 256}"[..], "d"), &["256", "u8"]);
    refused(bytes.read_from(&b"{\"a\": 1.5}"[..], "d"), &["1.5"]);
    refused(bytes.read_from(&b"{\"a\": \xff}"[..], "d"), &["line 1"]);
    refused(JsonLines::new().open("/nowhere/d.jsonl"), &["/nowhere/d.jsonl"]);
    // Items that do not fit together are an error of the loader, with the field.
    let data = read("{\"a\": [1]}\n{\"a\": [1, 2]}").unwrap();
    let text = DataLoader::new(data).batch_size(2).iter().next().unwrap().unwrap_err().to_string();
    assert!(text.contains("part `a`"), "{text}");
}
