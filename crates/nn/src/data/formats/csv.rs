//! Tables of numbers as text: CSV.

use super::open::{open, wrong};
use crate::data::TensorDataset;
use csv::{ReaderBuilder, StringRecord, Trim};
use pullback::{DType, Error, Result, Tensor};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

const FORMAT: &str = "csv";

/// How missing values are handled: an empty field, `NA`, `NaN`, `null` or `?`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Missing {
    /// Missing values are an error that names the line and the column.
    Refuse,
    /// Missing values become this value.
    Fill(f64),
    /// Missing values become the mean of the other values of the column.
    Mean,
}

/// A reader of CSV files: which columns, and what they mean.
///
/// ```
/// use pullback_nn::data::Csv;
///
/// let text = "width,height,kind\n1.5,2,oak\n3,4,ash\n";
/// let table = Csv::new().label("kind").read_from(text.as_bytes(), "trees.csv")?;
/// assert_eq!(table.columns, ["width", "height"]);
/// assert_eq!(table.features.to_vec::<f32>(), [1.5, 2.0, 3.0, 4.0]);
/// assert_eq!(table.classes, ["ash", "oak"]);
/// assert_eq!(table.labels.unwrap().to_vec::<i64>(), [1, 0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Csv {
    header: bool,
    delimiter: u8,
    columns: Option<Vec<String>>,
    categories: Vec<String>,
    label: Option<(String, LabelMeaning)>,
    missing: Missing,
    dtype: DType,
}

/// What a label is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LabelMeaning {
    Class,
    StoredType,
}

/// A table that [`Csv`] read from a file.
pub struct Table {
    /// The names of the feature columns: from the header, or `0`, `1`, ….
    pub columns: Vec<String>,
    /// The features, `[rows, columns]`.
    pub features: Tensor,
    /// The label of each row where a label column was named: `i64` classes, or numbers of the dtype
    /// of the features.
    pub labels: Option<Tensor>,
    /// The names of the classes, sorted; none where the labels are numbers in the file.
    pub classes: Vec<String>,
    /// The names of the categories of each column that [`Csv::category`] named.
    pub categories: Vec<(String, Vec<String>)>,
}

impl Table {
    /// The number of rows.
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().read_from(&b"a,b\n1,2\n3,4\n5,6\n"[..], "t.csv")?;
    /// assert_eq!(table.len(), 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.features.shape()[0]
    }

    /// Whether there are no rows.
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// assert!(Csv::new().read_from(&b"a,b\n"[..], "t.csv")?.is_empty());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A data set of the features and the labels.
    ///
    /// ```
    /// use pullback_nn::data::{Csv, Dataset};
    /// let table = Csv::new().label("y").read_from(&b"a,b,y\n1,2,0\n3,4,1\n"[..], "t.csv")?;
    /// let (x, y) = table.into_dataset()?.get(1)?;
    /// assert_eq!((x.to_vec::<f32>(), y.item::<i64>()), (vec![3.0, 4.0], 1));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no label column was named.
    pub fn into_dataset(self) -> Result<TensorDataset<(Tensor, Tensor)>> {
        let labels = self.labels.ok_or_else(|| {
            Error::argument(FORMAT, "the table has no labels")
                .hint("name the column with Csv::label or Csv::target")
        })?;
        TensorDataset::new((self.features, labels))
    }
}

impl Default for Csv {
    fn default() -> Csv {
        Csv::new()
    }
}

impl Csv {
    /// A reader of files with a header, commas, and numbers in all columns, as `f32`.
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().read_from(&b"a,b\n1,2\n3,4\n"[..], "t.csv")?;
    /// assert_eq!(table.columns, ["a", "b"]);
    /// assert_eq!(table.features.shape(), [2, 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Csv {
        Csv {
            header: true,
            delimiter: b',',
            columns: None,
            categories: Vec::new(),
            label: None,
            missing: Missing::Refuse,
            dtype: DType::F32,
        }
    }

    /// Whether the first line names the columns; `true` by default. Otherwise they are called `0`,
    /// `1`, ….
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().header(false).read_from(&b"1,2\n3,4\n"[..], "t.csv")?;
    /// assert_eq!((table.len(), &table.columns[1][..]), (2, "1"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn header(self, header: bool) -> Csv {
        Csv { header, ..self }
    }

    /// The separator of the fields: `b','` by default.
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().delimiter(b';').read_from(&b"a;b\n1;2\n"[..], "t.csv")?;
    /// assert_eq!(table.features.to_vec::<f32>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn delimiter(self, delimiter: u8) -> Csv {
        Csv { delimiter, ..self }
    }

    /// Reads these columns as features, in this order; by default, all but the label. A column that
    /// the file does not have is an error of [`Csv::read`].
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().columns(["c", "a"]).read_from(&b"a,b,c\n1,2,3\n"[..], "t.csv")?;
    /// assert_eq!(table.features.to_vec::<f32>(), [3.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn columns<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Csv {
        Csv { columns: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// The column with the class of each row: whole numbers are taken as they are, names are
    /// numbered in sorted order. A column that the file does not have is an error of [`Csv::read`].
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().label("kind").read_from(&b"x,kind\n1,oak\n2,ash\n"[..], "t.csv")?;
    /// assert_eq!(table.labels.unwrap().to_vec::<i64>(), [1, 0]);
    /// assert_eq!(table.classes, ["ash", "oak"]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn label(self, name: impl Into<String>) -> Csv {
        Csv { label: Some((name.into(), LabelMeaning::Class)), ..self }
    }

    /// The column with the number to predict for each row (regression). A column that the file does
    /// not have is an error of [`Csv::read`].
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().target("y").read_from(&b"x,y\n1,0.5\n2,0.25\n"[..], "t.csv")?;
    /// assert_eq!(table.labels.unwrap().to_vec::<f32>(), [0.5, 0.25]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn target(self, name: impl Into<String>) -> Csv {
        Csv { label: Some((name.into(), LabelMeaning::StoredType)), ..self }
    }

    /// A feature column that holds names, which are numbered in sorted order. A column that the
    /// file does not have is an error of [`Csv::read`].
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().category("kind").read_from(&b"x,kind\n1,oak\n2,ash\n"[..], "t.csv")?;
    /// assert_eq!(table.features.to_vec::<f32>(), [1.0, 1.0, 2.0, 0.0]);
    /// assert_eq!(table.categories[0].1, ["ash", "oak"]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn category(mut self, name: impl Into<String>) -> Csv {
        self.categories.push(name.into());
        self
    }

    /// How missing values are handled: [`Missing::Refuse`] by default.
    ///
    /// ```
    /// use pullback_nn::data::{Csv, Missing};
    /// let text = &b"a,b\n1,2\nNA,4\n3,\n"[..];
    /// let table = Csv::new().missing(Missing::Mean).read_from(text, "t.csv")?;
    /// assert_eq!(table.features.to_vec::<f32>(), [1.0, 2.0, 2.0, 4.0, 3.0, 3.0]);
    /// assert!(Csv::new().read_from(text, "t.csv").is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn missing(self, missing: Missing) -> Csv {
        Csv { missing, ..self }
    }

    /// The float dtype of the features; `f32` by default. Another dtype is an error of
    /// [`Csv::read`].
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().dtype(DType::F64).read_from(&b"a\n0.1\n"[..], "t.csv")?;
    /// assert_eq!(table.features.to_vec::<f64>(), [0.1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Csv {
        Csv { dtype, ..self }
    }

    /// Reads a file; a file whose name ends in `.gz` is decompressed.
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("t.csv");
    /// std::fs::write(&path, "a,b\n1,2\n").unwrap();
    /// assert_eq!(Csv::new().read(&path)?.features.to_vec::<f32>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, lacks a requested column, or has a field that is not a number
    /// where one is needed; the message names the file, the line and the column.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Table> {
        let path = path.as_ref();
        self.read_from(open(FORMAT, path)?, &path.display().to_string())
    }

    /// Reads from any [`Read`]; error messages call it `name`.
    ///
    /// ```
    /// use pullback_nn::data::Csv;
    /// let table = Csv::new().read_from(&b"a,b\n1,2\n"[..], "t.csv")?;
    /// assert_eq!(table.len(), 1);
    /// let error = Csv::new().read_from(&b"a,b\n1,two\n"[..], "t.csv").err().unwrap();
    /// assert!(error.to_string().contains("t.csv"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Csv::read`].
    pub fn read_from(&self, mut from: impl Read, name: &str) -> Result<Table> {
        if !self.dtype.is_float() {
            return Err(wrong(FORMAT, name, format!("features are floats, not {}", self.dtype)));
        }
        let mut text = Vec::new();
        from.read_to_end(&mut text).map_err(|e| wrong(FORMAT, name, e))?;
        let mut reader = ReaderBuilder::new()
            .has_headers(self.header)
            .delimiter(self.delimiter)
            .trim(Trim::All)
            .from_reader(&text[..]);
        let error = |e: csv::Error| wrong(FORMAT, name, e);
        let mut header: Vec<String> = match self.header {
            true => reader.headers().map_err(error)?.iter().map(str::to_string).collect(),
            false => Vec::new(),
        };
        let mut fields = Fields::default();
        let mut record = StringRecord::new();
        while reader.read_record(&mut record).map_err(error)? {
            if header.is_empty() {
                header = (0..record.len()).map(|i| i.to_string()).collect();
            }
            fields.lines.push(record.position().map_or(0, |at| line(&text, at)));
            fields.columns.resize_with(header.len(), Vec::new);
            for (column, field) in fields.columns.iter_mut().zip(&record) {
                column.push(field.to_string());
            }
        }
        if header.is_empty() {
            return Err(wrong(FORMAT, name, "there is nothing in it"));
        }
        fields.columns.resize_with(header.len(), Vec::new);
        CsvReading { csv: self, file: name, header, fields }.table()
    }

    /// Writes a table of numbers, `[rows, columns]`, with a header. A file whose name ends in `.gz`
    /// is compressed.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::Csv;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("t.csv");
    /// Csv::new().write(&path, &["a", "b"], &Tensor::from([[1.0f32, 0.5], [2.0, 0.25]]))?;
    /// assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,0.5\n2,0.25\n");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not a matrix with as many columns as names, or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, columns: &[&str], rows: &Tensor) -> Result<()> {
        let path = path.as_ref();
        let name = path.display().to_string();
        if rows.rank() != 2 || rows.shape()[1] != columns.len() {
            let message = format!("{} is not a table of {} columns", rows.spec(), columns.len());
            return Err(wrong(FORMAT, &name, message));
        }
        let file = std::fs::File::create(path).map_err(|e| wrong(FORMAT, &name, e))?;
        let zipped = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        let to: Box<dyn std::io::Write> = match zipped {
            true => Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            false => Box::new(file),
        };
        let mut writer = csv::WriterBuilder::new().delimiter(self.delimiter).from_writer(to);
        let error = |e: csv::Error| wrong(FORMAT, &name, e);
        if self.header {
            writer.write_record(columns).map_err(error)?;
        }
        let short = rows.dtype() == DType::F32;
        // The shortest text that reads back as the same number.
        let text = |v: &f64| if short { (*v as f32).to_string() } else { v.to_string() };
        for row in rows.to_f64_vec().chunks(columns.len().max(1)) {
            writer.write_record(row.iter().map(text)).map_err(error)?;
        }
        writer.flush().map_err(|e| wrong(FORMAT, &name, e))
    }
}

/// The fields of a file by column, and the line of each row.
#[derive(Default)]
struct Fields {
    columns: Vec<Vec<String>>,
    lines: Vec<u64>,
}

/// A file that was read, on its way to a table.
struct CsvReading<'a> {
    csv: &'a Csv,
    file: &'a str,
    header: Vec<String>,
    fields: Fields,
}

impl CsvReading<'_> {
    fn table(self) -> Result<Table> {
        let label = match &self.csv.label {
            Some((name, meaning)) => Some((self.find(name)?, *meaning)),
            None => None,
        };
        let chosen: Vec<usize> = match &self.csv.columns {
            Some(names) => names.iter().map(|name| self.find(name)).collect::<Result<_>>()?,
            None => (0..self.header.len()).filter(|&i| Some(i) != label.map(|l| l.0)).collect(),
        };
        for name in &self.csv.categories {
            self.find(name)?;
        }
        let rows = self.fields.lines.len();
        let mut values = vec![0.0; rows * chosen.len()];
        let mut categories = Vec::new();
        for (place, &column) in chosen.iter().enumerate() {
            let numbers = match self.csv.categories.contains(&self.header[column]) {
                true => {
                    let (codes, names) = self.classes(column)?;
                    categories.push((self.header[column].clone(), names));
                    codes.into_iter().map(|code| code as f64).collect()
                }
                false => self.numbers(column)?,
            };
            for (row, value) in numbers.into_iter().enumerate() {
                values[row * chosen.len() + place] = value;
            }
        }
        let (labels, classes) = match label {
            None => (None, Vec::new()),
            Some((column, LabelMeaning::StoredType)) => {
                (Some(Tensor::from(self.numbers(column)?).cast(self.csv.dtype)), Vec::new())
            }
            Some((column, LabelMeaning::Class)) => {
                let (codes, names) = match self.whole_numbers(column) {
                    Some(codes) => (codes, Vec::new()),
                    None => self.classes(column)?,
                };
                (Some(Tensor::from(codes)), names)
            }
        };
        let columns: Vec<String> = chosen.iter().map(|&i| self.header[i].clone()).collect();
        let features = Tensor::from_vec(values, [rows, chosen.len()]).cast(self.csv.dtype);
        Ok(Table { columns, features, labels, classes, categories })
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.header.iter().position(|column| column == name).ok_or_else(|| {
            let known = self.header.join(", ");
            wrong(
                FORMAT,
                self.file,
                format!("there is no column `{name}`; the columns are {known}"),
            )
        })
    }

    fn at(&self, row: usize, column: usize, what: impl std::fmt::Display) -> Error {
        let (line, name) = (self.fields.lines[row], &self.header[column]);
        wrong(FORMAT, self.file, format!("line {line}, column `{name}`: {what}"))
    }

    fn numbers(&self, column: usize) -> Result<Vec<f64>> {
        let mut out = Vec::with_capacity(self.fields.lines.len());
        let mut absent = Vec::new();
        for (row, field) in self.fields.columns[column].iter().enumerate() {
            if is_missing(field) {
                if self.csv.missing == Missing::Refuse {
                    let error = self.at(row, column, "the value is missing");
                    return Err(error.hint("Csv::missing says what to put there"));
                }
                absent.push(row);
                out.push(0.0);
                continue;
            }
            let number = field.parse::<f64>();
            out.push(
                number.map_err(|_| self.at(row, column, format!("`{field}` is not a number")))?,
            );
        }
        let Some(&first) = absent.first() else { return Ok(out) };
        let fill = match self.csv.missing {
            Missing::Fill(value) => value,
            _ => {
                let there = out.len() - absent.len();
                if there == 0 {
                    return Err(self.at(first, column, "no value is there to take the mean of"));
                }
                out.iter().sum::<f64>() / there as f64
            }
        };
        absent.into_iter().for_each(|row| out[row] = fill);
        Ok(out)
    }

    /// The column as integers, if it holds nothing else. `2.0` is one: other programs write them so
    /// where values are missing.
    fn whole_numbers(&self, column: usize) -> Option<Vec<i64>> {
        let whole = |x: &f64| x.fract() == 0.0 && x.abs() < 2f64.powi(53);
        let number = |field: &String| {
            let float = || field.parse().ok().filter(whole).map(|x| x as i64);
            field.parse().ok().or_else(float)
        };
        self.fields.columns[column].iter().map(number).collect()
    }

    /// Each field's place among the sorted distinct ones.
    fn classes(&self, column: usize) -> Result<(Vec<i64>, Vec<String>)> {
        let fields = &self.fields.columns[column];
        if let Some(row) = fields.iter().position(|field| is_missing(field)) {
            return Err(self.at(row, column, "the class is missing"));
        }
        let names: Vec<String> =
            fields.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let code = |field: &String| names.binary_search(field).unwrap_or_default() as i64;
        Ok((fields.iter().map(code).collect(), names))
    }
}

/// The line of a record: its position is before the empty lines above it, which are no records.
fn line(text: &[u8], at: &csv::Position) -> u64 {
    let above = text.iter().skip(at.byte() as usize).take_while(|b| matches!(b, b'\r' | b'\n'));
    at.line() + above.filter(|b| **b == b'\n').count() as u64
}

fn is_missing(field: &str) -> bool {
    ["", "na", "nan", "null", "?"].iter().any(|word| field.eq_ignore_ascii_case(word))
}
