//! Weights whose names and pieces differ: patterns for what may differ, and rules that join and
//! cut.

use pullback::{Tensor, Tree};
use pullback_nn::state::{Names, Weights, save_weights};
use std::path::{Path, PathBuf};

#[derive(Tree)]
struct Norm {
    weight: Tensor,
    #[tree(buffer)]
    num_batches_tracked: Tensor,
}

#[derive(Tree)]
struct Attention {
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

#[derive(Tree)]
struct Packed {
    qkv: Tensor,
}

#[derive(Tree)]
struct Apart {
    layers: Vec<Attention>,
    head: Tensor,
}

#[derive(Tree)]
struct Together {
    layers: Vec<Packed>,
    head: Tensor,
}

fn rows(from: i32, rows: usize) -> Tensor {
    let values: Vec<f64> = (0..rows as i32 * 2).map(|i| f64::from(from + i)).collect();
    Tensor::from_vec(values, [rows, 2])
}

fn apart() -> Apart {
    let layer = |i: i32| Attention { q: rows(i, 3), k: rows(i + 10, 3), v: rows(i + 20, 3) };
    Apart { layers: vec![layer(0), layer(100)], head: rows(7, 1) }
}

fn zeros(shape: [usize; 2]) -> Tensor {
    Tensor::zeros_with(shape, pullback::DType::F64)
}

fn together() -> Together {
    let layer = || Packed { qkv: zeros([9, 2]) };
    Together { layers: vec![layer(), layer()], head: zeros([1, 2]) }
}

const PARTS: [&str; 3] = ["layers.*.q", "layers.*.k", "layers.*.v"];

fn file(folder: &tempfile::TempDir, model: &impl pullback_nn::Module) -> PathBuf {
    let path = folder.path().join("weights.safetensors");
    save_weights(model, &path).unwrap();
    path
}

#[track_caller]
fn refused(weights: &Weights, model: &Together, path: &Path, parts: &[&str]) {
    let text = weights.load(model, path).unwrap_err().to_string();
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    // Nothing is half loaded.
    let untouched = model.leaves().iter().all(|x| x.to_f64_vec().iter().all(|v| *v == 0.0));
    assert!(untouched, "{text}");
}

#[test]
fn separate_weights_are_loaded_into_packed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (apart(), together());
    let path = file(&folder, &from);
    let names = Names::new().concat(&PARTS, 0, "layers.*.qkv");
    let loaded = Weights::new().names(names.clone()).load(&to, &path).unwrap();
    assert_eq!((loaded.written, loaded.missing.len(), loaded.unexpected.len()), (3, 0, 0));
    for (to, from) in to.layers.iter().zip(&from.layers) {
        let all = [&from.q, &from.k, &from.v].map(|x| x.to_vec::<f64>()).concat();
        assert_eq!(to.qkv.to_vec::<f64>(), all);
    }
    assert_eq!(to.head.to_vec::<f64>(), from.head.to_vec::<f64>());
    // And back: what is saved by the same rules is the file that it came from.
    let again = folder.path().join("again.safetensors");
    Weights::new().names(names).save(&to, &again).unwrap();
    let other = Apart { layers: vec![], ..apart() };
    assert!(pullback_nn::state::load_weights(&other, &again).is_err());
    let other = apart();
    other.leaves().iter().for_each(|x| drop(x.zero_()));
    pullback_nn::state::load_weights(&other, &again).unwrap();
    for (a, b) in other.leaves().iter().zip(from.leaves()) {
        assert_eq!(a.to_vec::<f64>(), b.to_vec::<f64>());
    }
}

#[test]
fn packed_weights_are_loaded_into_separate_ones() {
    let folder = tempfile::tempdir().unwrap();
    let packed = together();
    packed.layers.iter().for_each(|layer| drop(layer.qkv.copy_(rows(1, 9))));
    let path = file(&folder, &packed);
    let to = apart();
    let names = Names::new().split("layers.*.qkv", 0, &PARTS);
    Weights::new().names(names.clone()).load(&to, &path).unwrap();
    assert_eq!(to.layers[1].k.to_vec::<f64>(), rows(7, 3).to_vec::<f64>());
    let again = folder.path().join("again.safetensors");
    Weights::new().names(names).save(&to, &again).unwrap();
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&path).unwrap());
}

#[test]
fn parts_may_have_sizes_and_rules_follow_each_other() {
    #[derive(Tree)]
    struct Grouped {
        attn: Attention,
    }
    let folder = tempfile::tempdir().unwrap();
    let grouped = Attention { q: rows(0, 4), k: rows(50, 1), v: rows(60, 1) };
    let path = file(&folder, &Grouped { attn: grouped });
    let to = Together { layers: vec![Packed { qkv: zeros([6, 2]) }], head: zeros([1, 2]) };
    // Renamed first, then joined; the head is not in this file.
    let names = Names::new()
        .rename("attn", "layers.0")
        .concat(&PARTS, 0, "layers.*.qkv")
        .of_sizes(&[4, 1, 1]);
    let weights = Weights::new().names(names).allow_missing("head");
    let loaded = weights.load(&to, &path).unwrap();
    assert_eq!(loaded.missing, ["`head` f64[1,2]"]);
    let all = [rows(0, 4), rows(50, 1), rows(60, 1)].map(|x| x.to_vec::<f64>()).concat();
    assert_eq!(to.layers[0].qkv.to_vec::<f64>(), all);
    let again = folder.path().join("again.safetensors");
    weights.save(&Together { head: zeros([1, 2]), ..to }, &again).unwrap();
    let (one, two) = (rows(0, 4).zeros_like(), rows(0, 1).zeros_like());
    let back = Grouped { attn: Attention { q: one, k: two.clone(), v: two.zeros_like() } };
    Weights::new().ignore("head").load(&back, &again).unwrap();
    assert_eq!(back.attn.k.to_vec::<f64>(), rows(50, 1).to_vec::<f64>());
}

#[test]
fn rules_that_do_not_fit_say_so_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let to = together();
    let with = |names: Names| Weights::new().names(names);
    let concat = || Names::new().concat(&PARTS, 0, "layers.*.qkv");
    // A part that is not there.
    let path = file(&folder, &apart());
    let renamed = Names::new().rename("layers.1.v", "layers.1.w").concat(&PARTS, 0, "layers.*.qkv");
    refused(
        &with(renamed),
        &to,
        &path,
        &["concat([\"layers.*.q\"", "`layers.1.q`, `layers.1.k`", "`layers.1.v` is not there"],
    );
    // Parts that do not fit each other, or the model.
    let mut odd = apart();
    odd.layers[0].k = Tensor::from([[1.0, 2.0, 3.0]]);
    let path = file(&folder, &odd);
    refused(
        &with(concat()),
        &to,
        &path,
        &[
            "cannot join `layers.0.q` f64[3,2], `layers.0.k` f64[1,3], `layers.0.v` f64[3,2] along axis 0",
        ],
    );
    let mut short = apart();
    short.layers[0].k = rows(0, 2);
    let path = file(&folder, &short);
    refused(
        &with(concat()),
        &to,
        &path,
        &["`layers.0.q` + `layers.0.k` + `layers.0.v`", "is f64[8,2], f64[9,2] here"],
    );
    // Rules that are wrong in themselves.
    let path = file(&folder, &apart());
    let stars = Names::new().concat(&["layers.*.q", "layers.0.k"], 0, "layers.*.qkv");
    refused(
        &with(stars),
        &to,
        &path,
        &["a different number of times in `layers.0.k` and in `layers.*.qkv`"],
    );
    refused(&with(concat().of_sizes(&[1])), &to, &path, &["has 1 sizes for 3 parts"]);
    // What cannot be cut.
    let text = with(concat().of_sizes(&[1, 2, 3])).save(&to, folder.path().join("x")).unwrap_err();
    let text = text.to_string();
    assert!(
        text.contains("cannot cut `layers.0.qkv` f64[9,2] along axis 0 into parts of [1, 2, 3]"),
        "{text}"
    );
    assert!(!folder.path().join("x").exists());
    let packed = together();
    let path = file(&folder, &packed);
    let names = Names::new().split("layers.*.qkv", 0, &["layers.*.q", "layers.*.k"]);
    let text = with(names).load(&apart(), &path).unwrap_err().to_string();
    assert!(
        text.contains("cannot cut `layers.0.qkv` f64[9,2] along axis 0 into 2 equal parts"),
        "{text}"
    );
}

#[test]
fn one_stray_name_needs_no_lax_loading() {
    #[derive(Tree)]
    struct Plain {
        weight: Tensor,
    }
    let folder = tempfile::tempdir().unwrap();
    let norm = Norm { weight: rows(1, 1), num_batches_tracked: Tensor::from(5i64) };
    let path = file(&folder, &vec![norm]);
    let plain = || vec![Plain { weight: zeros([1, 2]) }];
    assert!(Weights::new().load(&plain(), &path).is_err());
    let model = plain();
    let weights = Weights::new().ignore("*.num_batches_tracked");
    let loaded = weights.load(&model, &path).unwrap();
    assert_eq!(loaded.unexpected, ["`0.num_batches_tracked` i64[]"]);
    assert_eq!(model[0].weight.to_vec::<f64>(), [1.0, 2.0]);
    // Everything else is as strict as before.
    let two = vec![Plain { weight: zeros([1, 2]) }, Plain { weight: zeros([1, 2]) }];
    let text = weights.load(&two, &path).unwrap_err().to_string();
    assert!(text.contains("1 missing") && text.contains("`1.weight`"), "{text}");
    assert_eq!(two[0].weight.to_vec::<f64>(), [0.0, 0.0]);
    let weights = weights.allow_missing("1.*");
    weights.load(&two, &path).unwrap();
    assert_eq!(two[0].weight.to_vec::<f64>(), [1.0, 2.0]);
    // A shape that differs is never excused.
    let wrong = vec![Plain { weight: zeros([2, 2]) }];
    let text = weights.load(&wrong, &path).unwrap_err();
    assert!(text.to_string().contains("1 mismatching"), "{text}");
    // What is ignored is not loaded, also where the model has it.
    let kept = vec![Plain { weight: zeros([2, 2]) }];
    Weights::new().ignore("*").allow_missing("*").load(&kept, &path).unwrap();
    assert_eq!(kept[0].weight.to_vec::<f64>(), [0.0; 4]);
}

/// A rule that cannot be meant is a sentence, when loading and when saving, and the sentence names
/// the line of the call.
#[test]
fn rules_that_cannot_be_meant() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (apart(), together());
    let path = file(&folder, &from);
    let head = "layers.*.qkv";
    let cases = [
        (Names::new().of_sizes(&[3, 3, 3]).concat(&PARTS, 0, head), "comes before every rule"),
        (
            Names::new().rename("a", "b").of_sizes(&[1]),
            "of_sizes([1]) comes after rename(\"a\", \"b\")",
        ),
        (Names::new().prefix("a", "").of_sizes(&[1]).concat(&PARTS, 0, head), "comes after prefix"),
        (
            Names::new().concat(&PARTS, 0, head).of_sizes(&[3; 3]).of_sizes(&[9, 0, 0]),
            "of_sizes was called twice for concat",
        ),
        (Names::new().concat(&PARTS, 0, head).concat(&[], 0, "head"), "names no parts"),
        (Names::new().concat(&[], 0, "nowhere"), "concat([], 0, \"nowhere\") names no parts"),
        (Names::new().split("layers", 0, &[]), "names no parts"),
        (Names::new().concat(&["layers.*.q", "layers.*.q"], 0, head), "names `layers.*.q` twice"),
        (
            Names::new().rename("layers.*.q", "layers.q"),
            "a different number of times in `layers.*.q`",
        ),
        (Names::new().rename("layers.0", "layers.*"), "in `layers.0` and in `layers.*`"),
    ];
    for (names, sentence) in cases {
        for strict in [true, false] {
            let weights = Weights::new().names(names.clone()).strict(strict);
            refused(&weights, &to, &path, &[sentence, "tests/weight_rules.rs:"]);
            let line = line!() + 1;
            let error = weights.save(&to, folder.path().join("none")).unwrap_err();
            assert!(error.to_string().contains(sentence), "no `{sentence}` in:\n{error}");
            assert_eq!(error.location().unwrap().line(), line, "{error}");
        }
    }
    assert!(!folder.path().join("none").exists());
    // What cannot be opened, too.
    let error = pullback_nn::state::load_weights(&to, folder.path().join("none")).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line!() - 1, "{error}");
}
