//! Random programs, fused as for a device, and each region of them run there and on the CPU.
//!
//! What is compared, and how:
//!
//! - *Exact*: copies, comparisons, selections, casts, integers, maxima and minima, and the
//!   arithmetic that IEEE 754 rounds (`+ - * /`, square roots). The same bits, but for NaN.
//! - *Near*: functions such as `exp`, within 16 units in the last place of the larger of the result
//!   and 1; and sums of n numbers that are not negative, within n + 16 units of the largest result.
//!   Results of 16 bits may also be rounded to either side. What is computed of such a value is
//!   multiplied with it, divided by it, or chosen, which keeps the bound but for a factor (4).
//!
//! Without a device every kernel is compiled, where NVRTC is found. `PULLBACK_REGION_SEED` runs one
//! seed alone, and prints its program.

use crate::device_tests::{Array, both, device};
use crate::dry_run_tests::{planned, prepare};
use crate::gpu::Gpu;
use pullback_cuda_sys::nvrtc;
use pullback_ir::{DType, Inst, Op, Pointwise, Program, Reduction, Var};
use std::fmt::Write;
use std::sync::Arc;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A value of the program so far: all have the shape of the domain.
#[derive(Clone, Copy)]
struct Known {
    name: Var,
    dtype: DType,
    exact: bool,
}

/// A program that is being written.
struct Written {
    rng: Rng,
    text: String,
    shape: [usize; 2],
    values: Vec<Known>,
    results: Vec<Var>,
    count: usize,
}

const DTYPES: [DType; 8] = [
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Bool,
];
const FUNCTIONS: [&str; 14] = [
    "exp", "log1p", "tanh", "sigmoid", "sin", "cos", "erf", "silu", "gelu", "erfc", "expm1",
    "atan", "rsqrt", "log",
];

impl Written {
    fn name(&mut self) -> Var {
        self.count += 1;
        Var(self.count as u32 - 1)
    }

    /// An equation: its result.
    fn line(&mut self, dtype: DType, shape: &[usize], op: &str) -> Var {
        let list: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let name = self.name();
        let _ = writeln!(self.text, "  let {name}: {dtype}[{}] = {op}", list.join(","));
        name
    }

    fn add(&mut self, dtype: DType, exact: bool, op: &str) -> Known {
        let name = self.line(dtype, &self.shape.clone(), op);
        let made = Known { name, dtype, exact };
        self.values.push(made);
        made
    }

    fn domain(&self) -> String {
        format!("[{},{}]", self.shape[0], self.shape[1])
    }

    /// Any value, or an exact one.
    fn any(&mut self, exact: bool) -> Known {
        let all: Vec<Known> = self.values.iter().copied().filter(|v| v.exact || !exact).collect();
        // The last ones more often, so that programs are deep.
        let from = if self.rng.below(2) == 0 { all.len().saturating_sub(4) } else { 0 };
        self.rng.of(&all[from..])
    }

    fn cast(&mut self, x: Known, to: DType) -> Known {
        if x.dtype == to {
            return x;
        }
        self.add(to, x.exact, &format!("cast{{{to}}} {}", x.name))
    }

    fn number(&mut self, value: &str, dtype: DType) -> Known {
        let domain = self.domain();
        self.add(dtype, true, &format!("literal{{{value}: {dtype}{domain}}}"))
    }

    fn float(&mut self, exact: bool) -> Known {
        let x = self.any(exact);
        if x.dtype.is_float() {
            return x;
        }
        let to = self.rng.of(&[DType::F32, DType::F64, DType::BF16]);
        self.cast(x, to)
    }

    fn step(&mut self) {
        match self.rng.below(12) {
            0..=3 => {
                let a = self.any(true);
                let other = self.any(true);
                let b = self.cast(other, a.dtype);
                let list: &[&str] = match a.dtype {
                    DType::Bool => &["and", "or", "xor"],
                    _ if a.dtype.is_float() => &["add", "sub", "mul", "div", "maximum", "minimum"],
                    _ => &["add", "sub", "mul", "maximum", "minimum", "and", "or", "xor"],
                };
                let f = self.rng.of(list);
                self.add(a.dtype, true, &format!("{f} {} {}", a.name, b.name));
            }
            4 => {
                let x = self.any(true);
                let list: &[&str] = match x.dtype {
                    DType::Bool => &["logical_not"],
                    _ if x.dtype.is_float() => {
                        &["neg", "abs", "square", "relu", "sign", "floor", "ceil", "recip"]
                    }
                    _ => &["neg", "abs", "square", "relu", "sign"],
                };
                match self.rng.of(list) {
                    "logical_not" => {
                        let yes = self.number("true", DType::Bool);
                        self.add(DType::Bool, true, &format!("xor {} {}", x.name, yes.name));
                    }
                    f => {
                        self.add(x.dtype, true, &format!("{f} {}", x.name));
                    }
                }
            }
            5 => {
                let x = self.float(true);
                let size = self.add(x.dtype, true, &format!("abs {}", x.name));
                self.add(x.dtype, true, &format!("sqrt {}", size.name));
            }
            6 => {
                let a = self.any(true);
                let other = self.any(true);
                let b = self.cast(other, a.dtype);
                let how = self.rng.of(&["eq", "ne", "lt", "le", "gt", "ge"]);
                let test = self.add(DType::Bool, true, &format!("{how} {} {}", a.name, b.name));
                let yes = self.any(false);
                let other = self.any(false);
                let no = self.cast(other, yes.dtype);
                let exact = yes.exact && no.exact;
                let of = format!("select {} {} {}", test.name, yes.name, no.name);
                self.add(yes.dtype, exact, &of);
            }
            7 => {
                let x = self.any(true);
                let to = self.rng.of(&DTYPES);
                self.cast(x, to);
            }
            // A function of a number between −8 and 8, or above a sixteenth.
            8 => {
                let (x, f) = (self.float(true), self.rng.of(&FUNCTIONS));
                let positive = matches!(f, "rsqrt" | "log" | "log1p");
                let [low, high] = if positive { ["0.0625", "8.0"] } else { ["-8.0", "8.0"] };
                let high = self.number(high, x.dtype);
                let low = self.number(low, x.dtype);
                let of = format!("minimum {} {}", x.name, high.name);
                let below = self.add(x.dtype, true, &of);
                let of = format!("maximum {} {}", below.name, low.name);
                let within = self.add(x.dtype, true, &of);
                self.add(x.dtype, false, &format!("{f} {}", within.name));
            }
            // A reduction of rows, and what is done with its result.
            9 | 10 => {
                let rows = self.shape[0];
                let kind = self.rng.of(&["sum", "max", "min"]);
                let x = if kind == "sum" { self.float(true) } else { self.any(true) };
                let sums = kind == "sum";
                let of = match sums {
                    true => self.add(x.dtype, true, &format!("abs {}", x.name)),
                    false => x,
                };
                let made = self.line(x.dtype, &[rows], &format!("{kind}{{[1]}} {}", of.name));
                if self.rng.below(3) == 0 {
                    self.results.push(made);
                }
                let column = format!("reshape{{[{rows},1]}} {made}");
                let column = self.line(x.dtype, &[rows, 1], &column);
                let spread = format!("broadcast{{{}}} {column}", self.domain());
                let spread = self.add(x.dtype, !sums, &spread);
                if sums {
                    let one = self.number("1.0", x.dtype);
                    let of = format!("maximum {} {}", spread.name, one.name);
                    let some = self.add(x.dtype, false, &of);
                    let f = self.rng.of(&["mul", "div"]);
                    self.add(x.dtype, false, &format!("{f} {} {}", x.name, some.name));
                }
            }
            // The sum over the rows, which is a result.
            _ => {
                let x = self.float(true);
                let size = self.add(x.dtype, true, &format!("abs {}", x.name));
                let columns = self.shape[1];
                let made = self.line(x.dtype, &[columns], &format!("sum{{[0]}} {}", size.name));
                self.results.push(made);
            }
        }
    }
}

/// The program of a seed.
fn program(seed: u64) -> String {
    let mut rng = Rng(seed);
    let rows = rng.of(&[1, 3, 40, 130, 257, 700]);
    let columns = rng.of(&[1, 5, 8, 33, 64, 96, 256, 257, 300, 768, 1000, 2050]);
    let mut of = Written {
        rng,
        text: String::new(),
        shape: [rows, columns],
        values: Vec::new(),
        results: Vec::new(),
        count: 0,
    };
    let mut inputs = Vec::new();
    let mut given = Vec::new();
    for _ in 0..2 + of.rng.below(3) {
        // Floats more often.
        let dtype = if of.rng.below(3) > 0 { of.rng.of(&DTYPES[..4]) } else { of.rng.of(&DTYPES) };
        let name = of.name();
        let shape = match of.rng.below(4) {
            0 => format!("[{columns}]"),
            1 => format!("[{rows},1]"),
            _ => of.domain(),
        };
        inputs.push(format!("{name}: {dtype}{shape}"));
        given.push((name, dtype, shape == of.domain()));
    }
    for (name, dtype, whole) in given {
        match whole {
            true => of.values.push(Known { name, dtype, exact: true }),
            false => {
                let spread = format!("broadcast{{{}}} {name}", of.domain());
                of.add(dtype, true, &spread);
            }
        }
    }
    for _ in 0..3 + of.rng.below(9) {
        of.step();
    }
    for _ in 0..1 + of.rng.below(3) {
        let value = of.any(false).name;
        of.results.push(value);
    }
    of.results.retain(|name| name.index() >= inputs.len());
    of.results.sort_unstable_by_key(|name| name.index());
    of.results.dedup();
    if of.results.is_empty() {
        let x = of.float(true);
        let made = of.add(x.dtype, true, &format!("square {}", x.name));
        of.results.push(made.name);
    }
    let results: Vec<String> = of.results.iter().map(|name| format!("{name}")).collect();
    format!("program ({}) {{\n{}  return {}\n}}", inputs.join(", "), of.text, results.join(", "))
}

/// Numbers of a dtype, small, with zeros of both signs; in some arrays infinities and NaN.
fn operand(dtype: DType, shape: &[usize], rng: &mut Rng) -> Array {
    let special = rng.below(4) == 0;
    let count = shape.iter().product();
    let one = |rng: &mut Rng| match dtype {
        DType::Bool => rng.below(2) as f64,
        DType::U8 => rng.below(256) as f64,
        DType::I32 | DType::I64 => rng.below(2001) as f64 - 1000.0,
        DType::F64 | DType::F32 | DType::BF16 | DType::F16 => match rng.below(64) {
            0 => -0.0,
            1 => 0.0,
            2 if special => f64::INFINITY,
            3 if special => f64::NEG_INFINITY,
            4 if special => f64::NAN,
            // Numbers that bf16 has.
            _ => (rng.below(257) as f64 - 128.0) / 32.0,
        },
    };
    let values = (0..count).map(|_| one(rng)).collect();
    Array::new(dtype, shape, values)
}

/// A unit in the last place of 1.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => 0.0,
    }
}

/// For each value of a region, whether it is exact, and the coarsest unit and the longest sum that
/// it is computed of.
fn bounds(region: &pullback_ir::Region) -> Vec<(bool, f64, usize)> {
    let values = region.values().expect("valid");
    let width: usize = region.shape[region.shape.len() - region.inner..].iter().product();
    let mut all: Vec<(bool, f64, usize)> = Vec::new();
    for (inst, value) in region.body.iter().zip(&values) {
        let own = unit(value.dtype);
        let joined = |of: &[usize]| {
            of.iter().fold((true, own, 0), |(exact, most, n), &v| {
                (exact && all[v].0, f64::max(most, all[v].1), n.max(all[v].2))
            })
        };
        all.push(match inst {
            Inst::Point(op, of) => {
                let (exact, most, n) = joined(of);
                // What rounds to an integer or a truth is far from a step, or exact.
                (exact && is_exact(op), most, n)
            }
            Inst::Reduce(kind, of) => {
                let (exact, most, n) = joined(&[*of]);
                let sums = *kind == Reduction::Sum && value.dtype.is_float();
                (exact && !sums, most, if sums { n + width } else { n })
            }
            Inst::Load(_) | Inst::Literal(..) | Inst::Index(..) | Inst::Random(..) => {
                (true, own, 0)
            }
        });
    }
    all
}

/// Whether the CPU and a device give the same bits.
fn is_exact(op: &Op) -> bool {
    let rounded = ["add", "sub", "mul", "div", "sqrt", "square", "recip"];
    match op.pointwise() {
        Some(Pointwise::Unary(f)) => f.is_exact() || rounded.contains(&f.name()),
        Some(Pointwise::Binary(f)) => f.is_exact() || rounded.contains(&f.name()),
        Some(Pointwise::UnaryVjp(_)) | None => false,
        Some(Pointwise::Compare(_) | Pointwise::Copy | Pointwise::Select | Pointwise::Cast(_)) => {
            true
        }
    }
}

/// What results are compared by: nothing but the bits, or so much of the larger of each element and
/// 1, or, of sums, of the largest element and 1.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Bits,
    OfEach(f64),
    OfLargest(f64),
}

/// Where two lists differ by more than a bound: the first place, and what is there.
fn differ(found: &[f64], wanted: &[f64], bound: Bound) -> Option<String> {
    assert_eq!(found.len(), wanted.len());
    let finite = |v: &&f64| v.is_finite();
    let largest = wanted.iter().filter(finite).fold(1f64, |most, v| most.max(v.abs()));
    let far =
        |a: f64, b: f64, bound: f64| a != b && ((a - b).abs() > bound || !(a - b).is_finite());
    let apart = |a: f64, b: f64| match bound {
        _ if a.is_nan() || b.is_nan() => a.is_nan() != b.is_nan(),
        Bound::Bits => a.to_bits() != b.to_bits(),
        Bound::OfEach(bound) => far(a, b, bound * b.abs().max(1.0)),
        Bound::OfLargest(bound) => far(a, b, bound * largest),
    };
    let at = found.iter().zip(wanted).position(|(a, b)| apart(*a, *b))?;
    Some(format!("element {at} is {:e}, and {:e} on the CPU", found[at], wanted[at]))
}

/// Runs the regions of a program on the device and on the CPU: what differs.
fn compare(gpu: &Gpu, program: &Program, rng: &mut Rng) -> Vec<String> {
    let mut wrong = Vec::new();
    for e in &program.equations {
        let Op::Region(region) = &e.op else { continue };
        let x: Vec<Array> = region
            .inputs
            .iter()
            .map(|load| operand(load.spec.dtype, &load.spec.shape, rng))
            .collect();
        let (found, wanted) = both(gpu, &e.op, &x);
        let bounds = bounds(region);
        let rows = region.shape.iter().product::<usize>().max(1);
        for (k, v) in region.outputs.iter().chain(&region.columns).enumerate() {
            let (exact, coarsest, mut n) = bounds[*v];
            let sums = k >= region.outputs.len();
            if sums {
                n += rows;
            }
            let fine = unit(DType::F32).min(coarsest);
            let bound = 4.0 * (coarsest * 2.0 + fine * (16 + n) as f64);
            let bound = match n {
                0 if exact => Bound::Bits,
                0 => Bound::OfEach(bound),
                _ => Bound::OfLargest(bound),
            };
            if let Some(why) = differ(&found[k], &wanted[k], bound) {
                wrong.push(format!("result {k} ({v}, bound {bound:?}): {why}"));
            }
        }
    }
    wrong
}

fn seeds() -> Vec<u64> {
    match std::env::var("PULLBACK_REGION_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..300).collect(),
    }
}

#[test]
fn random_regions_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let (seeds, mut wrong, mut regions) = (seeds(), Vec::new(), 0);
    for &seed in &seeds {
        let text = program(seed);
        if seeds.len() == 1 {
            println!("{text}");
        }
        let planned = planned(&text);
        regions += planned.program().equations.iter().filter(|e| is_region(&e.op)).count();
        for why in compare(&gpu, planned.program(), &mut Rng(seed ^ 0x5eed)) {
            wrong.push(format!("seed {seed}: {why}"));
        }
    }
    println!("{regions} regions of {} programs", seeds.len());
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
}

fn is_region(op: &Op) -> bool {
    matches!(op, Op::Region(_))
}

/// Also that programs are valid, that most have regions, and that the CPU takes these.
#[test]
fn random_regions_compile() {
    let gpu = Arc::new(Gpu::fake(90));
    let (mut regions, mut reductions, mut columns) = (0, 0, 0);
    for seed in seeds().into_iter().take(60) {
        let text = program(seed);
        let planned = planned(&text);
        for e in &planned.program().equations {
            let Op::Region(region) = &e.op else { continue };
            regions += 1;
            reductions += usize::from(region.body.iter().any(|i| matches!(i, Inst::Reduce(..))));
            columns += usize::from(!region.columns.is_empty());
            let rng = &mut Rng(seed);
            let x: Vec<Array> = region
                .inputs
                .iter()
                .map(|load| operand(load.spec.dtype, &load.spec.shape, rng))
                .collect();
            let made = crate::device_tests::on_host(&e.op, &x);
            assert_eq!(made.len(), region.outputs.len() + region.columns.len());
            bounds(region);
        }
        if nvrtc().is_ok() {
            let report = prepare(&gpu, &planned);
            assert_eq!(report.made[5], 0, "NVRTC refuses a kernel of seed {seed}\n{text}");
        }
    }
    assert!(regions > 60 && reductions > 15, "{regions}, {reductions}");
    println!("{regions} regions, {reductions} with reductions, {columns} with sums over rows");
}
