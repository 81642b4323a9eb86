//! JSON lines: one object a line.

use super::{open, wrong};
use crate::data::dataset::check_index;
use crate::data::{Collate, Dataset};
use pullback::{DType, Error, Result, Tensor, catch};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

const FORMAT: &str = "json lines";

/// The kind of value that a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A tensor of this dtype: a number or boolean has no axes, lists have as many axes as they are
    /// nested.
    Tensor(DType),
    /// A string.
    Text,
}

/// A field of an item.
///
/// ```
/// use pullback_nn::data::{Dataset, FieldKind, JsonLines};
/// let data = JsonLines::new().read_from(&br#"{"x": [1, 2], "name": "a"}"#[..], "d.jsonl")?;
/// assert_eq!(data.fields()[1], ("name".to_string(), FieldKind::Text));
/// let item = data.get(0)?;
/// assert_eq!(item["x"].tensor()?.shape(), [2]);
/// assert_eq!(item["name"].text()?, "a");
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Field {
    /// Numbers or booleans.
    Tensor(Tensor),
    /// A string.
    Text(String),
}

impl Field {
    /// The tensor.
    ///
    /// ```
    /// use pullback_nn::data::Field;
    /// let field = Field::Tensor(pullback::Tensor::from([1i64, 2]));
    /// assert_eq!(field.tensor()?.to_vec::<i64>(), [1, 2]);
    /// assert!(field.text().is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the field is a string.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Field::Tensor(x) => Ok(x),
            Field::Text(_) => Err(Error::argument(FORMAT, "the field is a string, not a tensor")),
        }
    }

    /// The string.
    ///
    /// ```
    /// use pullback_nn::data::Field;
    /// let field = Field::Text("good".to_string());
    /// assert_eq!(field.text()?, "good");
    /// assert!(field.tensor().is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the field is a tensor.
    pub fn text(&self) -> Result<&str> {
        match self {
            Field::Text(text) => Ok(text),
            Field::Tensor(_) => Err(Error::argument(FORMAT, "the field is a tensor, not a string")),
        }
    }
}

/// A field of a batch.
#[derive(Clone, Debug)]
pub enum FieldBatch {
    /// Tensors, stacked along a new first axis.
    Tensor(Tensor),
    /// Strings.
    Texts(Vec<String>),
}

impl FieldBatch {
    /// The tensor.
    ///
    /// ```
    /// use pullback_nn::data::{Collate, Field};
    /// let items = vec![Field::Tensor(1i64.into()), Field::Tensor(2i64.into())];
    /// assert_eq!(Field::collate(items)?.tensor()?.to_vec::<i64>(), [1, 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the field holds strings.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            FieldBatch::Tensor(x) => Ok(x),
            FieldBatch::Texts(_) => Err(Error::argument(FORMAT, "the field is texts")),
        }
    }

    /// The strings.
    ///
    /// ```
    /// use pullback_nn::data::{Collate, Field};
    /// let items = vec![Field::Text("a".into()), Field::Text("b".into())];
    /// assert_eq!(Field::collate(items)?.texts()?, ["a", "b"]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the field is a tensor.
    pub fn texts(&self) -> Result<&[String]> {
        match self {
            FieldBatch::Texts(texts) => Ok(texts),
            FieldBatch::Tensor(_) => Err(Error::argument(FORMAT, "the field is a tensor")),
        }
    }
}

impl Collate for Field {
    type Batch = FieldBatch;

    fn collate(items: Vec<Field>) -> Result<FieldBatch> {
        if let Some(Field::Text(_)) = items.first() {
            let texts = items.iter().map(|item| Ok(item.text()?.to_string()));
            return Ok(FieldBatch::Texts(texts.collect::<Result<_>>()?));
        }
        let tensors =
            items.iter().map(|item| item.tensor().cloned()).collect::<Result<Vec<_>>>()?;
        Ok(FieldBatch::Tensor(Tensor::collate(tensors)?))
    }
}

/// A reader of files with one JSON object per line. [`JsonLines::tensor`] and [`JsonLines::text`]
/// choose the fields.
///
/// Without them, all fields of the first object are read: strings as strings, whole numbers as
/// `i64`, other numbers as `f32`, booleans as `bool`, lists as tensors of these.
///
/// ```
/// use pullback::DType;
/// use pullback_nn::data::{DataLoader, JsonLines};
///
/// let text = r#"{"text": "good", "label": 1, "scores": [0.5, 2]}
/// {"text": "bad", "label": 0, "scores": [1, 4]}
/// "#;
/// let data = JsonLines::new().read_from(text.as_bytes(), "reviews.jsonl")?;
/// let batch = DataLoader::new(data).batch_size(2).iter().next().unwrap()?;
/// assert_eq!(batch["text"].texts()?, ["good", "bad"]);
/// assert_eq!(batch["label"].tensor()?.to_vec::<i64>(), [1, 0]);
/// assert_eq!(batch["scores"].tensor()?.to_vec::<f32>(), [0.5, 2.0, 1.0, 4.0]);
///
/// // Chosen fields, in dtypes of your own.
/// let labels = JsonLines::new().tensor("label", DType::F64);
/// let labels = labels.read_from(text.as_bytes(), "reviews.jsonl")?;
/// assert_eq!(labels.fields().len(), 1);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct JsonLines {
    fields: Vec<(String, FieldKind)>,
}

impl JsonLines {
    /// A reader of all fields of the first object.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, JsonLines};
    /// let data = JsonLines::new().read_from(&b"{\"x\": [1, 2], \"y\": 0.5}"[..], "d.jsonl")?;
    /// assert_eq!((data.len(), data.fields().len()), (1, 2));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> JsonLines {
        JsonLines::default()
    }

    /// Reads this field as a tensor. Fields that are not named are left out.
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::{Dataset, JsonLines};
    /// let labels = JsonLines::new().tensor("y", DType::F64);
    /// let data = labels.read_from(&b"{\"x\": 3, \"y\": 1}"[..], "d.jsonl")?;
    /// let item = data.get(0)?;
    /// assert_eq!((item.len(), item["y"].tensor()?.item::<f64>()), (1, 1.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn tensor(mut self, name: impl Into<String>, dtype: DType) -> JsonLines {
        self.fields.push((name.into(), FieldKind::Tensor(dtype)));
        self
    }

    /// Reads this field as a string. Fields that are not named are left out.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, JsonLines};
    /// let reader = JsonLines::new().text("name");
    /// let data = reader.read_from(&b"{\"name\": \"oak\", \"y\": 1}"[..], "d.jsonl")?;
    /// assert_eq!(data.get(0)?["name"].text()?, "oak");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn text(mut self, name: impl Into<String>) -> JsonLines {
        self.fields.push((name.into(), FieldKind::Text));
        self
    }

    /// Reads a file into memory; a file whose name ends in `.gz` is decompressed.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, JsonLines};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("data.jsonl");
    /// std::fs::write(&path, "{\"x\": 1}\n{\"x\": 2}\n").unwrap();
    /// let data = JsonLines::new().open(&path)?;
    /// assert_eq!(data.get(1)?["x"].tensor()?.item::<i64>(), 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or a line is not a JSON object with these fields; the message
    /// names the file, the line and the field.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<JsonLinesDataset> {
        let path = path.as_ref();
        self.read_from(&mut *open(FORMAT, path)?, &path.display().to_string())
    }

    /// Reads from any [`Read`]; error messages call it `name`. Empty lines are skipped.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, JsonLines};
    /// let data = JsonLines::new().read_from(&b"{\"x\": 1}\n\n{\"x\": 2}"[..], "d.jsonl")?;
    /// assert_eq!(data.len(), 2);
    /// let data = JsonLines::new().read_from(&b"{\"x\": 1}\n{\"y\": 2}"[..], "d.jsonl");
    /// assert!(data.err().unwrap().to_string().contains("line 2: field `x`"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`JsonLines::open`].
    pub fn read_from(&self, from: impl Read, name: &str) -> Result<JsonLinesDataset> {
        let mut rows: Vec<(usize, Map<String, Value>)> = Vec::new();
        for (i, line) in BufReader::new(from).split(b'\n').enumerate() {
            let place = |what: String| wrong(FORMAT, name, format!("line {}: {what}", i + 1));
            let line = line.map_err(|e| place(e.to_string()))?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(Value::Object(object)) => rows.push((i + 1, object)),
                Ok(other) => {
                    return Err(place(format!("an object is expected, not {}", kind_of(&other))));
                }
                Err(e) => {
                    let column = e.column();
                    return Err(place(format!("it is not JSON, at column {column}: {e}")));
                }
            }
        }
        let fields = match self.fields.is_empty() {
            true => guessed(&rows),
            false => self.fields.clone(),
        };
        let mut items = Vec::with_capacity(rows.len());
        for (line, row) in &rows {
            let mut item = BTreeMap::new();
            for (field, kind) in &fields {
                let made = match row.get(field) {
                    Some(value) => field_from(value, *kind),
                    None => Err("it is missing".to_string()),
                };
                let made = made.map_err(|what| {
                    wrong(FORMAT, name, format!("line {line}: field `{field}`: {what}"))
                })?;
                item.insert(field.clone(), made);
            }
            items.push(item);
        }
        Ok(JsonLinesDataset { items, fields })
    }
}

/// The data set of the objects of a file: see [`JsonLines`].
pub struct JsonLinesDataset {
    items: Vec<BTreeMap<String, Field>>,
    fields: Vec<(String, FieldKind)>,
}

impl JsonLinesDataset {
    /// The names of the fields, with their kinds.
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::{FieldKind, JsonLines};
    /// let data = JsonLines::new().read_from(&b"{\"x\": 1, \"name\": \"oak\"}"[..], "d.jsonl")?;
    /// assert!(data.fields().contains(&("x".to_string(), FieldKind::Tensor(DType::I64))));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn fields(&self) -> &[(String, FieldKind)] {
        &self.fields
    }
}

impl Dataset for JsonLinesDataset {
    type Item = BTreeMap<String, Field>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn get(&self, index: usize) -> Result<BTreeMap<String, Field>> {
        check_index(index, self.items.len())?;
        Ok(self.items[index].clone())
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The fields of the first object. Numbers are floats if one of the field is, in any object.
fn guessed(rows: &[(usize, Map<String, Value>)]) -> Vec<(String, FieldKind)> {
    let Some((_, first)) = rows.first() else { return Vec::new() };
    let kind = |field: &String, value: &Value| {
        let mut all = rows.iter().filter_map(|(_, row)| row.get(field));
        match (value, leaf(value)) {
            (Value::String(_), _) => FieldKind::Text,
            (_, Some(Value::Bool(_))) => FieldKind::Tensor(DType::Bool),
            _ if all.any(has_fraction) => FieldKind::Tensor(DType::F32),
            _ => FieldKind::Tensor(DType::I64),
        }
    };
    first.iter().map(|(field, value)| (field.clone(), kind(field, value))).collect()
}

/// The first value in nested lists.
fn leaf(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(list) => list.iter().find_map(leaf),
        other => Some(other),
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(has_fraction),
        Value::Number(n) => n.is_f64(),
        _ => false,
    }
}

/// A field of an item, or what is wrong with the value.
fn field_from(value: &Value, kind: FieldKind) -> std::result::Result<Field, String> {
    let dtype = match (kind, value) {
        (FieldKind::Text, Value::String(text)) => return Ok(Field::Text(text.clone())),
        (FieldKind::Text, other) => {
            return Err(format!("a string is expected, not {}", kind_of(other)));
        }
        (FieldKind::Tensor(dtype), _) => dtype,
    };
    let mut shape = Vec::new();
    let mut inner = value;
    while let Value::Array(list) = inner {
        shape.push(list.len());
        match list.first() {
            Some(first) => inner = first,
            None => break,
        }
    }
    let said = |e: Error| e.message().to_string();
    let tensor = if dtype.is_float() {
        let mut numbers = Vec::new();
        gather(value, &shape, &mut |v| match v.as_f64() {
            Some(x) => {
                numbers.push(x);
                Ok(())
            }
            None => Err(format!("a number is expected, not {}", kind_of(v))),
        })?;
        catch(|| Tensor::from_vec(numbers, &shape[..]).cast(dtype))
    } else if dtype == DType::Bool {
        let mut truths = Vec::new();
        gather(value, &shape, &mut |v| match v.as_bool() {
            Some(x) => {
                truths.push(x);
                Ok(())
            }
            None => Err(format!("true or false is expected, not {}", kind_of(v))),
        })?;
        catch(|| Tensor::from_vec(truths, &shape[..]))
    } else {
        let (low, high) = match dtype {
            DType::U8 => (0, i64::from(u8::MAX)),
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let mut numbers = Vec::new();
        gather(value, &shape, &mut |v| match (v.as_i64(), v) {
            (Some(x), _) if (low..=high).contains(&x) => {
                numbers.push(x);
                Ok(())
            }
            (_, Value::Number(n)) => Err(format!("{n} is not an integer in the range of {dtype}")),
            _ => Err(format!("an integer is expected, not {}", kind_of(v))),
        })?;
        catch(|| Tensor::from_vec(numbers, &shape[..]).cast(dtype))
    };
    tensor.map(Field::Tensor).map_err(said)
}

/// Calls `found` with the values of nested lists of this shape, in order.
fn gather(
    value: &Value,
    shape: &[usize],
    found: &mut dyn FnMut(&Value) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    match (value, shape.split_first()) {
        (Value::Array(list), Some((&n, rest))) if list.len() == n => {
            list.iter().try_for_each(|value| gather(value, rest, found))
        }
        (Value::Array(list), Some((n, _))) => {
            Err(format!("its lists have different lengths: {n} and {}", list.len()))
        }
        (Value::Array(_), None) => Err("its lists are not nested evenly".to_string()),
        (other, Some(_)) => Err(format!("a list is expected, not {}", kind_of(other))),
        (value, None) => found(value),
    }
}
