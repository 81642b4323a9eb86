//! Text as numbers, and collation.

use pullback::{DType, Tensor, Tree};
use pullback_nn::data::{
    ByteTokens, CharTokens, Collate, DataLoader, Dataset, TextWindows, Tokens, collate_trees,
    from_vec, pad_sequences, read_text, text,
};
use std::collections::{BTreeMap, HashMap};

#[test]
fn the_embedded_text_is_verse() {
    let text = text();
    assert!(text.is_ascii() && (15_000..40_000).contains(&text.len()));
    let sonnets: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(sonnets.len(), 33);
    assert!(sonnets.iter().all(|sonnet| sonnet.trim().lines().count() == 14));
}

#[test]
fn tokens_are_text_again() {
    let all = "naïve café\n\u{1F600}";
    let chars = CharTokens::of(all);
    for tokens in [&ByteTokens as &dyn Tokens, &chars] {
        let encoded = tokens.encode(all).unwrap();
        assert!(encoded.iter().all(|&t| (0..tokens.size() as i64).contains(&t)));
        assert_eq!(tokens.decode(&encoded).unwrap(), all);
        assert_eq!(tokens.decode(&[]).unwrap(), "");
        for bad in [-1, tokens.size() as i64] {
            let text = tokens.decode(&[0, bad]).unwrap_err().to_string();
            assert!(text.contains(&format!("number 1 is {bad}")), "{text}");
        }
    }
    assert!(chars.encode("caz").unwrap_err().to_string().contains("'z', character 2"));
    assert!(CharTokens::of("").decode(&[0]).is_err());
    // A vocabulary is saved as text.
    let saved = serde_json::to_string(&chars).unwrap();
    assert_eq!(serde_json::from_str::<CharTokens>(&saved).unwrap(), chars);
    // Half a character.
    assert_eq!(ByteTokens.decode(&[110, 195]).unwrap(), "n\u{FFFD}");
}

#[test]
fn windows_cover_the_text() {
    let tokens: Vec<i64> = (0..10).collect();
    let all = TextWindows::new(tokens.clone(), 3).unwrap();
    assert_eq!(all.len(), 7);
    assert_eq!(all.get(6).unwrap().1.to_vec::<i64>(), [7, 8, 9]);
    assert!(all.get(7).is_err());
    let apart = TextWindows::new(tokens.clone(), 3).unwrap().stride(3);
    assert_eq!(apart.len(), 3);
    let (x, y) = DataLoader::new(apart).batch_size(3).iter().next().unwrap().unwrap();
    assert_eq!(x.to_vec::<i64>(), Vec::from_iter(0..9));
    assert_eq!(y.to_vec::<i64>(), Vec::from_iter(1..10));
    // The last window never goes over the end.
    for block in 1..10 {
        for stride in 1..12 {
            let windows = TextWindows::new(tokens.clone(), block).unwrap().stride(stride);
            assert!(windows.get(windows.len() - 1).is_ok());
        }
    }
    assert!(TextWindows::new(tokens.clone(), 10).is_err());
    assert!(TextWindows::new(tokens, 0).is_err());
}

#[test]
fn text_files_say_where_they_are_not_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.txt");
    std::fs::write(&path, "héllo").unwrap();
    assert_eq!(read_text(&path).unwrap(), "héllo");
    std::fs::write(&path, b"abc\xff").unwrap();
    let text = read_text(&path).unwrap_err().to_string();
    assert!(text.contains("t.txt") && text.contains("offset 3"), "{text}");
}

#[test]
fn items_collate_by_parts() {
    type Item = (Tensor, [f32; 2], Vec<i64>, BTreeMap<String, bool>, HashMap<String, u8>, String);
    let item = |i: i64| -> Item {
        let key = || "k".to_string();
        let x = Tensor::from([i, -i]);
        (
            x,
            [i as f32, 0.5],
            vec![i, 7, 8],
            [(key(), i > 0)].into(),
            [(key(), i as u8)].into(),
            format!("{i}"),
        )
    };
    let (x, pair, list, tree, map, names) = Item::collate(vec![item(1), item(2)]).unwrap();
    assert_eq!((x.shape(), x.to_vec::<i64>()), (&[2, 2][..], vec![1, -1, 2, -2]));
    assert_eq!(pair[0].to_vec::<f32>(), [1.0, 2.0]);
    assert_eq!((list.len(), list[1].to_vec::<i64>()), (3, vec![7, 7]));
    assert_eq!(tree["k"].to_vec::<bool>(), [true, true]);
    assert_eq!(map["k"].to_vec::<u8>(), [1, 2]);
    assert_eq!(names, ["1", "2"]);
    for (batch, dtype) in [
        (usize::collate(vec![1, 2]).unwrap(), DType::I64),
        (u32::collate(vec![1, u32::MAX]).unwrap(), DType::I64),
        (i16::collate(vec![-1]).unwrap(), DType::I32),
        (f64::collate(vec![0.5]).unwrap(), DType::F64),
    ] {
        assert_eq!(batch.dtype(), dtype);
    }
}

#[test]
fn items_that_do_not_fit_are_named() {
    let zeros = |n: usize| Tensor::zeros([n]);
    let text = Tensor::collate(vec![zeros(2), zeros(2), zeros(3)]).unwrap_err().to_string();
    assert!(text.contains("item 2 of the batch is f32[3], but item 0 is f32[2]"), "{text}");
    assert!(text.contains("pad_sequences") && !text.contains("Resize"), "{text}");
    let sized = |a: &[usize], b: &[usize]| {
        Tensor::collate(vec![Tensor::zeros(a), Tensor::zeros(b)]).unwrap_err().to_string()
    };
    // Sequences of vectors; images with and without channels; a number of channels that differs.
    let text = sized(&[5, 8], &[3, 8]);
    assert!(text.contains("pad_sequences") && !text.contains("Resize"), "{text}");
    let images: [[&[usize]; 2]; 3] =
        [[&[3, 32, 32], &[3, 32, 40]], [&[3, 32, 32], &[3, 28, 32]], [&[28, 28], &[30, 32]]];
    for [a, b] in images {
        let text = sized(a, b);
        let advised = text.contains("`transforms::Resize::new((height, width))`");
        assert!(advised && !text.contains("pad_sequences"), "{text}");
    }
    let text = sized(&[3, 32, 32], &[1, 32, 32]);
    assert!(!text.contains("pad_sequences") && !text.contains("Resize"), "{text}");
    assert!(text.contains("`x.expand([3, -1, -1])`"), "{text}");
    // `[features, time]`: padding is along the first axis.
    let text = sized(&[80, 100], &[80, 120]);
    assert!(text.contains("`data.map(|x| Ok(x.t()))`"), "{text}");
    let text = Tensor::collate(vec![zeros(2), zeros(2).cast(DType::F64)]).unwrap_err().to_string();
    assert!(text.contains("item 1 of the batch is f64[2]"), "{text}");
    assert!(text.contains("to one dtype with `.cast(..)`"), "{text}");
    let text = Vec::<i64>::collate(vec![vec![1], vec![1, 2]]).unwrap_err().to_string();
    assert!(text.contains("item 1 of the batch has 2 parts"), "{text}");
    let map = |keys: &[&str]| -> BTreeMap<String, i64> {
        keys.iter().map(|k| (k.to_string(), 1)).collect()
    };
    let text = BTreeMap::collate(vec![map(&["a"]), map(&["b"])]).unwrap_err().to_string();
    assert!(text.contains("item 1 of the batch has no `a`"), "{text}");
    let text = BTreeMap::collate(vec![map(&["a"]), map(&["a", "b"])]).unwrap_err().to_string();
    assert!(text.contains("item 1 of the batch has `b`, but item 0 has not"), "{text}");
    assert!(Tensor::collate(vec![]).is_err());
    assert!(<[i64; 2]>::collate(vec![]).is_err());
}

#[derive(Tree)]
struct Sample {
    image: Tensor,
    boxes: Vec<Tensor>,
    scale: f64,
}

#[test]
fn structs_collate_by_leaves() {
    let sample = |n: usize, scale| Sample {
        image: Tensor::ones([2]),
        boxes: vec![Tensor::zeros([n])],
        scale,
    };
    let batch = collate_trees(vec![sample(3, 1.0), sample(3, 1.0)]).unwrap();
    assert_eq!(
        (batch.image.shape(), batch.boxes[0].shape(), batch.scale),
        (&[2, 2][..], &[2, 3][..], 1.0)
    );
    let text = collate_trees(vec![sample(3, 1.0), sample(4, 1.0)]).err().unwrap().to_string();
    assert!(text.contains("item 1 of the batch is f32[4]") && text.contains("boxes.0"), "{text}");
    let text = collate_trees(vec![sample(3, 1.0), sample(3, 2.0)]).err().unwrap().to_string();
    assert!(text.contains("item 1 of the batch has another structure than item 0"), "{text}");
}

#[test]
fn a_batch_is_not_the_data() {
    let one = Tensor::ones([2]);
    for batch in [
        Tensor::collate(vec![one.clone()]).unwrap(),
        Tensor::collate(vec![one.clone(), one.clone()]).unwrap(),
    ] {
        assert!(!batch.shares_memory(&one));
    }
}

#[test]
fn sequences_are_padded() {
    let row = |n: usize| Tensor::ones([n, 2]);
    let data = from_vec(vec![row(1), row(3), row(0)]);
    let loader =
        DataLoader::with_collate_fn(data, pad_sequences(-1.0)).batch_size(3).num_workers(1);
    let (x, lengths) = loader.iter().next().unwrap().unwrap();
    assert_eq!(x.shape(), [3, 3, 2]);
    assert_eq!(lengths.to_vec::<i64>(), [1, 3, 0]);
    assert_eq!(x.sum_over([1, 2]).to_vec::<f32>(), [2.0 - 4.0, 6.0, -6.0]);
    let pad = |items| pad_sequences(0)(items).err().unwrap().to_string();
    assert!(pad(vec![row(1), Tensor::ones([1, 3])]).contains("item 1 of the batch is f32[1,3]"));
    assert!(pad(vec![Tensor::from(1.0)]).contains("item 0"));
    assert!(
        pad_sequences(0.5)(vec![Tensor::from([1i64])]).is_err(),
        "halves do not go among integers"
    );
}

#[cfg(feature = "tokenizers")]
#[test]
fn byte_pairs_are_learned_saved_and_loaded() {
    use pullback_nn::data::Bpe;
    let bpe = Bpe::train(text(), 400).unwrap();
    assert_eq!(bpe.size(), 400);
    let tokens = bpe.encode(text()).unwrap();
    assert!(tokens.len() < text().len() * 3 / 4);
    assert_eq!(bpe.decode(&tokens).unwrap(), text());
    let strange = "Ünïcode \u{1F600}\n\n tabs\t";
    assert_eq!(bpe.decode(&bpe.encode(strange).unwrap()).unwrap(), strange);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    bpe.save(&path).unwrap();
    assert_eq!(Bpe::load(&path).unwrap().encode(text()).unwrap(), tokens);
    std::fs::write(&path, "{").unwrap();
    assert!(Bpe::load(&path).err().unwrap().to_string().contains("tokenizer.json"));
    assert!(Bpe::train("short", 100).is_err());
    assert!(bpe.decode(&[400]).is_err());
}
