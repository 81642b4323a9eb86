//! Weights: what PyTorch wrote, what is refused, and names.

use crate::model::{Linear, Model, values};
use pullback::{DType, Tensor, Tree};
use pullback_nn::Module;
use pullback_nn::state::{Names, Weights, load_weights, save_weights};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

#[test]
fn a_file_of_pytorch_loads_with_every_value() {
    let model = Model::filled(0.0);
    load_weights(&model, fixture("weights.safetensors")).unwrap();
    let text = std::fs::read_to_string(fixture("weights.json")).unwrap();
    let wanted: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let state = model.named_leaves();
    assert_eq!(state.len(), wanted.len());
    for (name, x) in state {
        let want = &wanted[&name]["values"];
        let want: Vec<f64> = want.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!(x.to_f64_vec(), want, "{name}");
    }
    // Loading writes to what was there: gradients still come, and what was tied still is.
    assert!(model.head.weight.is_leaf() && model.head.weight.is_same(&model.embedding.weight));
    assert_eq!(model.norm.bn.num_batches_tracked.item::<i64>(), 1);
}

#[test]
fn what_is_saved_is_loaded_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let (model, other) = (Model::filled(0.1), Model::filled(0.2));
    model.norm.bn.bias.detach().select_at(0, 0).fill_(f64::NAN);
    model.norm.mask.fill_(true);
    save_weights(&model, &path).unwrap();
    load_weights(&other, &path).unwrap();
    let bits = |m: &Model| -> Vec<Vec<u64>> {
        values(m).iter().map(|(_, v)| v.iter().map(|x| x.to_bits()).collect()).collect()
    };
    assert_eq!(bits(&other), bits(&model));
    // Saving again gives the same bytes, and leaves nothing else behind.
    let first = std::fs::read(&path).unwrap();
    save_weights(&other, &path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn all_dtypes_and_shapes_go_through() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let all: Vec<Tensor> = DType::ALL.iter().map(|&d| Tensor::arange(0, 6).cast(d)).collect();
    let views = vec![all[0].reshape([2, 3]).t(), Tensor::zeros([0, 3]), Tensor::from(2.5)];
    save_weights(&(all.clone(), views.clone()), &path).unwrap();
    let blank = |x: &Tensor| Tensor::zeros_with(x.shape(), x.dtype());
    let fresh: (Vec<Tensor>, Vec<Tensor>) =
        (all.iter().map(blank).collect(), views.iter().map(blank).collect());
    load_weights(&fresh, &path).unwrap();
    assert_eq!(values(&fresh), values(&(all, views)));
}

#[derive(Tree)]
struct Pair {
    first: Linear,
    second: Linear,
}

fn linear(inputs: usize, outputs: usize, value: f32) -> Linear {
    let parameter = |shape: &[usize]| Tensor::full(shape, value).requires_grad();
    Linear { weight: parameter(&[outputs, inputs]), bias: parameter(&[outputs]) }
}

#[test]
fn a_file_that_does_not_fit_changes_nothing_and_everything_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pair.safetensors");
    let others = (linear(3, 2, 1.0), linear(7, 7, 1.0));
    let names = Names::new().rename("first", "0").rename("third", "1");
    Weights::new().names(names).save(&others, &path).unwrap();
    let pair = Pair { first: linear(4, 2, 5.0), second: linear(2, 2, 5.0) };
    let before = values(&pair);
    let error = load_weights(&pair, &path).unwrap_err().to_string();
    for part in [
        "load_weights: ",
        "pair.safetensors does not fit the model: 2 missing, 2 unexpected, 1 mismatching",
        "missing: `second.weight` f32[2,2]",
        "missing: `second.bias` f32[2]",
        "unexpected: `third.bias` f32[7]",
        "unexpected: `third.weight` f32[7,7]",
        "mismatching: `first.weight` is f32[2,3] in the file, f32[2,4] here",
        "hint: names that differ",
    ] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    // A mismatch is refused where tensors may be missing, too; and what fits is not written then.
    let error = Weights::new().strict(false).load(&pair, &path).unwrap_err().to_string();
    assert!(error.contains("the model: 1 mismatching") && !error.contains("missing:"), "{error}");
    assert_eq!(values(&pair), before);
}

#[test]
fn an_error_names_ten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("few.safetensors");
    save_weights(&vec![Tensor::zeros([1])], &path).unwrap();
    let many: Vec<Tensor> = (0..25).map(|_| Tensor::zeros([1])).collect();
    let error = load_weights(&many, &path).unwrap_err().to_string();
    assert_eq!(error.matches("missing: `").count(), 10, "{error}");
    assert!(error.contains("24 missing") && error.contains("and 14 more"), "{error}");
}

#[test]
fn a_file_may_have_less_and_more_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.safetensors");
    save_weights(&(linear(3, 2, 1.0), Tensor::zeros([4])), &path).unwrap();
    let model = (linear(3, 2, 5.0), vec![linear(1, 1, 5.0)]);
    let loaded = Weights::new().strict(false).load(&model, &path).unwrap();
    assert_eq!(loaded.written, 2);
    assert_eq!(loaded.missing, ["`1.0.weight` f32[1,1]", "`1.0.bias` f32[1]"]);
    assert_eq!(loaded.unexpected, ["`1` f32[4]"]);
    assert_eq!(model.0.bias.to_vec::<f32>(), [1.0; 2]);
    assert_eq!(model.1[0].bias.to_vec::<f32>(), [5.0]);
}

#[test]
fn dtypes_are_cast_if_asked_but_not_between_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.safetensors");
    save_weights(&(Tensor::from([1.5, 2.5]), Tensor::from([7i64])), &path).unwrap();
    let narrow = (Tensor::zeros([2]), Tensor::from([0i32]));
    let error = load_weights(&narrow, &path).unwrap_err().to_string();
    assert!(error.contains("`0` is f64[2] in the file, f32[2] here"), "{error}");
    Weights::new().cast(true).load(&narrow, &path).unwrap();
    assert_eq!(narrow.0.to_vec::<f32>(), [1.5, 2.5]);
    assert_eq!(narrow.1.to_vec::<i32>(), [7]);
    let whole = (Tensor::from([0i64, 0]), Tensor::from([0i64]));
    let error = Weights::new().cast(true).load(&whole, &path).unwrap_err().to_string();
    assert!(error.contains("`0` is f64[2] in the file, i64[2] here"), "{error}");
}

#[test]
fn either_name_of_a_tied_parameter_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tied.safetensors");
    let model = Model::filled(3.0);
    for (name, other) in [("embedding.weight", "head.weight"), ("head.weight", "embedding.weight")]
    {
        // Untied in the file: only one of the two names is there.
        let state = model.named_leaves().into_iter().filter(|(known, _)| known != other);
        let file: std::collections::BTreeMap<String, Tensor> = state.collect();
        assert!(file.contains_key(name));
        save_weights(&file, &path).unwrap();
        let fresh = Model::filled(0.0);
        load_weights(&fresh, &path).unwrap();
        assert_eq!(values(&fresh), values(&model));
    }
    // Both names with other values are no tied parameter.
    let both: std::collections::BTreeMap<String, Tensor> = model
        .named_leaves()
        .into_iter()
        .map(|(name, x)| if name == "head.weight" { (name, x.detach() * 2.0) } else { (name, x) })
        .collect();
    save_weights(&both, &path).unwrap();
    let error = load_weights(&Model::filled(0.0), &path).unwrap_err().to_string();
    assert!(error.contains("`embedding.weight` and `head.weight` are one tensor"), "{error}");
}

#[test]
fn names_map_both_ways_and_matrices_turn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("renamed.safetensors");
    let pair = Pair { first: linear(3, 2, 0.0), second: linear(2, 2, 1.0) };
    pair.first.weight.detach().copy_(Tensor::arange(0, 6).reshape([2, 3]));
    let names = Names::new()
        .prefix("module.", "")
        .rename("h.c_attn", "first")
        .transposed("module.h.c_attn.weight");
    let weights = Weights::new().names(names);
    weights.save(&pair, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("module.h.c_attn.weight").unwrap().shape(), [3, 2]);
    let mut names = file.names();
    names.sort_unstable();
    assert_eq!(names[..2], ["module.h.c_attn.bias", "module.h.c_attn.weight"]);
    assert_eq!(names[2..], ["module.second.bias", "module.second.weight"]);
    let fresh = Pair { first: linear(3, 2, 9.0), second: linear(2, 2, 9.0) };
    weights.load(&fresh, &path).unwrap();
    assert_eq!(values(&fresh), values(&pair));
    let error = load_weights(&fresh, &path).unwrap_err().to_string();
    assert!(error.contains("unexpected: `module.h.c_attn.bias`"), "{error}");
}

#[test]
fn names_that_meet_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meet.safetensors");
    let pair = (Tensor::zeros([1]), Tensor::zeros([1]));
    let weights = Weights::new().names(Names::new().rename("0", "1"));
    let error = weights.save(&pair, &path).unwrap_err().to_string();
    assert!(error.contains("two tensors would be named `0` in the file"), "{error}");
    assert!(!path.exists());
    save_weights(&pair, &path).unwrap();
    let error = weights.load(&pair, &path).unwrap_err().to_string();
    assert!(error.contains("`1` and `0` are both named the same in the model"), "{error}");
}

#[test]
fn files_that_are_not_whole_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = Model::filled(1.0);
    save_weights(&model, &path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let before = values(&model);
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = load_weights(&model, &path).unwrap_err().to_string();
        assert!(error.contains("model.safetensors"), "{error}");
        error
    };
    // At whatever byte it ends.
    for end in (0..whole.len()).step_by(7) {
        refused(&whole[..end]);
    }
    let cut = refused(&whole[..whole.len() - 1]);
    assert!(
        cut.contains("is cut short: it ends at byte") && cut.contains("inside tensor `"),
        "{cut}"
    );
    assert!(refused(b"").contains("is not a whole safetensors file"));
    assert!(refused(&[0xff; 64]).contains("is not a whole safetensors file"));
    // A byte that is no truth value: the last tensor of the file is the mask.
    let mut odd = whole.clone();
    *odd.last_mut().unwrap() = 7;
    let odd = refused(&odd);
    assert!(odd.contains("`norm.mask` is stored as bool, but holds a byte"), "{odd}");
    assert_eq!(values(&model), before);
    let error = load_weights(&model, folder.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none cannot be read"), "{error}");
    let error = save_weights(&model, folder.path().join("no/such/folder")).unwrap_err().to_string();
    assert!(error.contains("folder cannot be written"), "{error}");
}

#[test]
fn a_tensor_that_may_not_be_written_is_named_and_nothing_else_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_weights(&vec![Tensor::ones([2]), Tensor::ones([2, 2])], &path).unwrap();
    let model = vec![Tensor::zeros([2]), Tensor::zeros([1]).expand([2, 2])];
    let error = load_weights(&model, &path).unwrap_err().to_string();
    assert!(error.contains("`1` may not be written"), "{error}");
    assert_eq!(model.parameters()[0].to_vec::<f32>(), [0.0; 2]);
}
