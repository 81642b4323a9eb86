//! Reading a folder of reference gradients: `NAME.json` lists cases, `NAME.safetensors` holds their
//! tensors.

use crate::args::{Arg, Args};
use pullback::{DType, Tensor, bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// What went wrong while reading, in a sentence.
pub type Read<T> = Result<T, String>;

/// The folder of `PULLBACK_GOLDEN`, or the one that the project carries.
pub fn folder() -> PathBuf {
    match std::env::var_os("PULLBACK_GOLDEN") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../golden"),
    }
}

/// Every operator that the folder has cases for, in order.
pub fn operators(folder: &Path) -> Read<Vec<String>> {
    let entries = std::fs::read_dir(folder)
        .map_err(|e| format!("the folder {} cannot be read: {e}", folder.display()))?;
    let name = |path: PathBuf| path.file_name()?.to_str()?.strip_suffix(".json").map(String::from);
    let mut names: Vec<String> = entries.filter_map(|e| name(e.ok()?.path())).collect();
    names.sort();
    match names.is_empty() {
        true => {
            Err(format!("the folder {} has no operator in it (no .json file)", folder.display()))
        }
        false => Ok(names),
    }
}

/// One sample of an operator: its arguments, and the tensors that go with it.
pub struct Case {
    args: Vec<Value>,
    kwargs: Vec<(String, Value)>,
    /// Shape and dtype of each output, and whether it is differentiable.
    pub outputs: Vec<Output>,
    pub vjp: bool,
    pub jvp: bool,
    pub gg: bool,
    /// Input tensors by number.
    pub inputs: BTreeMap<usize, Tensor>,
    /// The numbers of the inputs that are differentiated.
    pub wrt: Vec<usize>,
    /// Why the case cannot be run here: a dtype that the library does not have. It counts as
    /// missing.
    pub unknown: Option<String>,
    tensors: HashMap<String, Tensor>,
}

/// What an output should be.
pub struct Output {
    pub shape: Vec<usize>,
    pub dtype: DType,
    pub diff: bool,
}

impl Case {
    /// The tensor `KIND.INDEX` of the case; a missing one means zero.
    pub fn tensor(&self, kind: &str, index: usize) -> Option<&Tensor> {
        self.tensors.get(&format!("{kind}.{index}"))
    }

    /// The arguments, with these tensors for the differentiated inputs.
    pub fn args(&self, values: &[Tensor]) -> Args {
        let mut inputs = self.inputs.clone();
        inputs.extend(self.wrt.iter().copied().zip(values.iter().cloned()));
        let positional = self.args.iter().map(|a| argument(a, &inputs)).collect();
        let named = self.kwargs.iter().map(|(k, v)| (k.clone(), argument(v, &inputs))).collect();
        Args { positional, named }
    }

    /// How many checks the case asks for: the output, and each derivative it has.
    pub fn checks(&self) -> usize {
        1 + [self.vjp, self.jvp, self.gg].into_iter().filter(|&has| has).count()
    }
}

/// The cases of one operator.
pub fn cases(folder: &Path, name: &str) -> Read<Vec<Case>> {
    let at = |suffix: &str| folder.join(format!("{name}.{suffix}"));
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
    };
    let corrupt =
        |path: &Path, e: &dyn std::fmt::Display| format!("{} is corrupt: {e}", path.display());
    let (json, data) = (at("json"), at("safetensors"));
    let listing: Value = serde_json::from_slice(&read(&json)?).map_err(|e| corrupt(&json, &e))?;
    let bytes = read(&data)?;
    let store = SafeTensors::deserialize(&bytes).map_err(|e| corrupt(&data, &e))?;
    let list =
        listing["cases"].as_array().ok_or_else(|| corrupt(&json, &"it has no list `cases`"))?;
    type Stored<'a> = (Dtype, Vec<usize>, &'a [u8]);
    let mut by_case: HashMap<usize, HashMap<String, Stored>> = HashMap::new();
    for (key, view) in store.iter() {
        let parts = key
            .split_once('.')
            .and_then(|(case, rest)| Some((case.parse().ok()?, rest.to_string())));
        let (case, rest) =
            parts.ok_or_else(|| corrupt(&data, &format!("`{key}` is not CASE.KIND.INDEX")))?;
        by_case
            .entry(case)
            .or_default()
            .insert(rest, (view.dtype(), view.shape().to_vec(), view.data()));
    }
    let one = |(i, value): (usize, &Value)| {
        let raw = by_case.remove(&i).unwrap_or_default();
        case(value, raw).map_err(|e| corrupt(&json, &format!("case {i}: {e}")))
    };
    list.iter().enumerate().map(one).collect()
}

fn case(value: &Value, raw: HashMap<String, (Dtype, Vec<usize>, &[u8])>) -> Read<Case> {
    let args = value["args"].as_array().ok_or("no list `args`")?.clone();
    let kwargs: Vec<(String, Value)> = match value["kwargs"].as_object() {
        Some(map) => map.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        None => Vec::new(),
    };
    // Inputs know their dtype from the arguments, outputs from the list of outputs: bool is stored
    // as u8.
    let mut unknown = None;
    let mut named: BTreeMap<usize, (DType, bool)> = BTreeMap::new();
    for value in args.iter().chain(kwargs.iter().map(|(_, v)| v)) {
        mentioned(value, &mut named, &mut unknown)?;
    }
    let mut outputs = Vec::new();
    for output in value["outputs"].as_array().ok_or("no list `outputs`")? {
        let lengths = output["shape"].as_array().ok_or("an output has no shape")?;
        let shape = lengths.iter().map(|n| n.as_u64().map(|n| n as usize)).collect::<Option<_>>();
        let mut shape: Vec<usize> = shape.ok_or("a length of an output is not a number")?;
        if is_complex(&output["dtype"]) {
            shape.push(2);
        }
        match dtype(&output["dtype"]) {
            Ok(dtype) => outputs.push(Output { shape, dtype, diff: output["diff"] == true }),
            Err(why) => unknown = Some(why),
        }
    }
    let mut tensors = HashMap::new();
    for (key, (stored, shape, bytes)) in raw {
        let (kind, index) =
            key.split_once('.').ok_or_else(|| format!("`{key}` is not KIND.INDEX"))?;
        let index: usize = index.parse().map_err(|_| format!("`{key}` is not KIND.INDEX"))?;
        let wanted = match kind {
            "out" => outputs.get(index).map(|o| o.dtype),
            "in" => named.get(&index).map(|n| n.0),
            _ => None,
        };
        match tensor(stored, &shape, bytes, wanted) {
            Ok(x) => drop(tensors.insert(key, x)),
            Err(why) => unknown = Some(why),
        }
    }
    let mut inputs = BTreeMap::new();
    for &j in named.keys() {
        match tensors.get(&format!("in.{j}")) {
            Some(x) => drop(inputs.insert(j, x.clone())),
            None if unknown.is_some() => {}
            None => return Err(format!("there is no tensor in.{j}")),
        }
    }
    let wrt = named.iter().filter(|(_, n)| n.1).map(|(&j, _)| j).collect();
    let has = |key: &str| value[key] == true;
    Ok(Case {
        args,
        kwargs,
        outputs,
        vjp: has("vjp"),
        jvp: has("jvp"),
        gg: has("gg"),
        inputs,
        wrt,
        unknown,
        tensors,
    })
}

/// Notes the tensors that an argument names, with dtype and whether they are differentiated.
fn mentioned(
    value: &Value,
    found: &mut BTreeMap<usize, (DType, bool)>,
    unknown: &mut Option<String>,
) -> Read<()> {
    if let Some(list) = value.as_array() {
        return list.iter().try_for_each(|v| mentioned(v, found, unknown));
    }
    if let Some(j) = value.get("tensor") {
        let j = j.as_u64().ok_or("the number of a tensor is not a number")? as usize;
        match dtype(&value["dtype"]) {
            Ok(dtype) => drop(found.insert(j, (dtype, value["diff"] == true))),
            Err(why) => *unknown = Some(why),
        }
    }
    Ok(())
}

/// Complex numbers are stored as pairs of floats, on a last axis of 2.
fn is_complex(dtype: &Value) -> bool {
    dtype.as_str().is_some_and(|name| name.starts_with("complex"))
}

fn dtype(name: &Value) -> Read<DType> {
    Ok(match name.as_str().unwrap_or_default() {
        "float64" | "complex128" => DType::F64,
        "float32" | "complex64" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "int64" => DType::I64,
        "int32" => DType::I32,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        other => return Err(format!("`{other}` is no dtype that is known here")),
    })
}

fn tensor(stored: Dtype, shape: &[usize], bytes: &[u8], wanted: Option<DType>) -> Read<Tensor> {
    fn words<const N: usize, T>(bytes: &[u8], word: fn([u8; N]) -> T) -> Vec<T> {
        bytes.chunks_exact(N).map(|c| word(std::array::from_fn(|i| c[i]))).collect()
    }
    let x = match stored {
        Dtype::F64 => Tensor::from_vec(words(bytes, f64::from_le_bytes), shape),
        Dtype::F32 => Tensor::from_vec(words(bytes, f32::from_le_bytes), shape),
        Dtype::F16 => Tensor::from_vec(words(bytes, f16::from_le_bytes), shape),
        Dtype::BF16 => Tensor::from_vec(words(bytes, bf16::from_le_bytes), shape),
        Dtype::I64 => Tensor::from_vec(words(bytes, i64::from_le_bytes), shape),
        Dtype::I32 => Tensor::from_vec(words(bytes, i32::from_le_bytes), shape),
        Dtype::U8 => Tensor::from_vec(bytes, shape),
        Dtype::BOOL => {
            Tensor::from_vec(bytes.iter().map(|&b| b != 0).collect::<Vec<bool>>(), shape)
        }
        other => return Err(format!("the stored dtype {other:?} is not known here")),
    };
    Ok(wanted.map_or(x.clone(), |dtype| x.cast(dtype)))
}

fn argument(value: &Value, inputs: &BTreeMap<usize, Tensor>) -> Arg {
    if let Some(j) = value.get("tensor").and_then(Value::as_u64) {
        let x = inputs[&(j as usize)].clone();
        return if is_complex(&value["dtype"]) { Arg::Complex(x) } else { Arg::Tensor(x) };
    }
    if let Some(x) = value.get("float") {
        let special = |s: &str| s.parse().unwrap_or_else(|_| panic!("`{s}` is no float"));
        return Arg::Float(x.as_f64().unwrap_or_else(|| special(x.as_str().unwrap_or_default())));
    }
    if let Some(bounds) = value.get("slice").and_then(Value::as_array) {
        let bound = |i: usize| bounds.get(i).and_then(Value::as_i64).map(|n| n as isize);
        return Arg::Slice(bound(0), bound(1), bound(2));
    }
    match value {
        Value::Null => Arg::Null,
        Value::Bool(b) => Arg::Bool(*b),
        Value::Number(n) => {
            n.as_i64().map_or_else(|| Arg::Float(n.as_f64().unwrap_or(f64::NAN)), Arg::Int)
        }
        Value::String(s) => Arg::Text(s.clone()),
        Value::Array(list) => Arg::List(list.iter().map(|v| argument(v, inputs)).collect()),
        Value::Object(_) => panic!("an argument of an unknown kind: {value}"),
    }
}
