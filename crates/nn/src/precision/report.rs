//! What a low dtype loses of the gradients.

use super::snapshot::Snapshot;
use crate::Module;
use pullback::{DType, Error, Result, Tensor, autocast, autocast_off, catch, no_grad};
use serde::Serialize;
use std::fmt;

const OP: &str = "PrecisionReport";

/// How far below the largest number of the dtype a gradient is called near overflow.
const HEADROOM: f64 = 16.0;

/// How much of the gradient of each parameter a low dtype loses.
///
/// The backward pass runs twice with the same random numbers: in `f32` without a scale, as the
/// reference, and inside `autocast` with the scale. The shares are of the second run. An element
/// counts as flushed if it is zero there but not in `f32`. Nothing is changed: gradients, buffers
/// and the random generator are restored.
///
/// The suggested scale is a power of two: the smallest that lifts the smallest gradient above the
/// subnormal numbers, if the largest one is then still a factor of 16 below overflow, and otherwise
/// the largest with that distance. It is tried, and halved until nothing overflows, since a
/// gradient on the way to the parameters may be larger than theirs. Where gradients are not finite
/// even with a very small scale, as those of a loss that is NaN, none is suggested.
///
/// ```
/// use pullback::{DType, Tensor, Tree};
/// use pullback_nn::precision::PrecisionReport;
///
/// #[derive(Tree)]
/// struct Line {
///     weight: Tensor,
/// }
///
/// let model = Line { weight: Tensor::ones([1, 4]).requires_grad() };
/// // The gradients are 10⁻⁶ times x: two underflow to zero in f16, and a third is subnormal.
/// let x = Tensor::from([[1e-3f32, 1e-2, 1.0, 1e2]]);
/// let report = PrecisionReport::new(&model, DType::F16, 1.0, |m| {
///     Ok(x.linear(&m.weight, None).sum() * 1e-6)
/// })?;
/// assert_eq!(report.layers[0].name, "weight");
/// assert_eq!((report.layers[0].flushed, report.layers[0].subnormal), (0.5, 0.25));
/// assert!(report.suggested.unwrap() > 1e4);
/// println!("{report}");
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrecisionReport {
    /// The low dtype.
    pub dtype: String,
    /// The scale of the loss.
    pub scale: f64,
    /// The suggested scale; `None` if gradients are not finite with any.
    pub suggested: Option<f64>,
    /// One for each parameter that has a gradient.
    pub layers: Vec<LayerPrecision>,
}

/// How much of the gradient of one parameter a low dtype loses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerPrecision {
    /// The name of the parameter.
    pub name: String,
    /// The number of its elements.
    pub elements: usize,
    /// The share of elements that became zero.
    pub flushed: f64,
    /// The share that lost bits, because they are below the smallest normal number.
    pub subnormal: f64,
    /// The share that is within a factor of 16 of the largest number.
    pub near_overflow: f64,
    /// The share that is infinite or NaN.
    pub not_finite: f64,
    /// The largest magnitude in `f32`, without a scale.
    pub largest: f64,
    /// The smallest magnitude in `f32` that is not zero, without a scale; `None` if all are zero.
    pub smallest: Option<f64>,
}

impl PrecisionReport {
    /// The report on a loss. The closure computes it without `autocast`, which is put around it.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// use pullback_nn::precision::PrecisionReport;
    /// let model = [Tensor::ones([1, 2]).requires_grad()];
    /// let x = Tensor::from([[1.0f32, 1e5]]);
    /// let loss = |m: &[Tensor; 1]| Ok(x.linear(&m[0], None).sum());
    /// let report = PrecisionReport::new(&model, DType::F16, 1.0, loss)?;
    /// assert_eq!(report.layers[0].not_finite, 0.5); // 1e5 is above the largest f16
    /// assert!(PrecisionReport::new(&model, DType::F32, 1.0, loss).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is neither `bf16` nor `f16`, the scale is not positive and finite, the closure
    /// or a backward pass fails, or no parameter has a gradient.
    pub fn new<M: Module>(
        model: &M,
        dtype: DType,
        scale: f64,
        loss: impl Fn(&M) -> Result<Tensor>,
    ) -> Result<PrecisionReport> {
        let Some(range) = DtypeRange::of(dtype) else {
            return Err(Error::argument(OP, format!("is on bf16 or f16, not on {dtype}")));
        };
        if !(scale > 0.0 && scale.is_finite()) {
            let message = format!("the scale must be a number above 0, not {scale}");
            return Err(Error::argument(OP, message));
        }
        let parameters = model.named_parameters();
        let leaves: Vec<Tensor> = parameters.iter().map(|(_, x)| x.clone()).collect();
        let state = || model.named_state().into_iter().map(|(_, x)| x);
        let before = Snapshot::of(state(), &leaves);
        let gradients = |scale: f64, low: bool| -> Result<Vec<Option<Tensor>>> {
            before.around(|| {
                leaves.iter().for_each(Tensor::zero_grad);
                let loss = match low {
                    true => autocast(dtype, || loss(model))?,
                    false => autocast_off(|| loss(model))?,
                };
                catch(|| loss.cast(DType::F64) * scale)?.backward()?;
                Ok(leaves.iter().map(Tensor::grad).collect())
            })
        };
        let exact = gradients(1.0, false)?;
        let low = gradients(scale, true)?;
        let rows = parameters.iter().zip(exact.iter().zip(&low));
        let rows =
            rows.filter_map(|((name, _), (g, low))| Some((name, g.as_ref()?, low.as_ref()?)));
        let layers = catch(|| {
            no_grad(|| rows.map(|(name, g, low)| range.layer(name, g, low)).collect::<Vec<_>>())
        })?;
        if layers.is_empty() {
            return Err(Error::argument(OP, "no parameter of the model has a gradient"));
        }
        let is_finite = |scale: f64| -> Result<bool> {
            let tried = gradients(scale, true)?;
            catch(|| tried.iter().flatten().all(|g| g.is_finite().all().item::<bool>()))
        };
        let suggested = first_finite(range.suggested(&layers), is_finite)?;
        Ok(PrecisionReport { dtype: dtype.to_string(), scale, suggested, layers })
    }

    /// The report as JSON. Numbers that are not finite are `null`.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// use pullback_nn::precision::PrecisionReport;
    /// let model = [Tensor::ones([1, 2]).requires_grad()];
    /// let x = Tensor::from([[1.0f32, 2.0]]);
    /// let report = PrecisionReport::new(&model, DType::F16, 1.0, |m| {
    ///     Ok(x.linear(&m[0], None).sum())
    /// })?;
    /// assert!(report.to_json()?.contains("\"dtype\": \"f16\""));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// None at present: names and numbers can always be written.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::argument(OP, format!("cannot be written as JSON: {error}")))
    }
}

/// How often a suggestion is halved at most: from any scale to where nothing of `f16` overflows.
const HALVINGS: i32 = 48;

/// The first of a scale and its halves that is good. The smallest is tried early: if that is not,
/// none is.
fn first_finite(from: f64, is_finite: impl Fn(f64) -> Result<bool>) -> Result<Option<f64>> {
    if is_finite(from)? {
        return Ok(Some(from));
    }
    let smallest = from * 0.5f64.powi(HALVINGS);
    if !is_finite(smallest)? {
        return Ok(None);
    }
    for halvings in 1..HALVINGS {
        let scale = from * 0.5f64.powi(halvings);
        if is_finite(scale)? {
            return Ok(Some(scale));
        }
    }
    Ok(Some(smallest))
}

/// The numbers of a dtype.
struct DtypeRange {
    largest: f64,
    smallest_normal: f64,
}

impl DtypeRange {
    fn of(dtype: DType) -> Option<DtypeRange> {
        match dtype {
            DType::F16 => Some(DtypeRange { largest: 65504.0, smallest_normal: 2f64.powi(-14) }),
            DType::BF16 => Some(DtypeRange {
                largest: pullback::bf16::MAX.to_f64(),
                smallest_normal: 2f64.powi(-126),
            }),
            DType::F64 | DType::F32 | DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
        }
    }

    /// A row, from the gradient in `f32` and from the scaled one in the low dtype.
    fn layer(&self, name: &str, exact: &Tensor, low: &Tensor) -> LayerPrecision {
        let (exact, low) = (exact.cast(DType::F64).abs(), low.cast(DType::F64).abs());
        let elements = exact.len();
        let share =
            |x: Tensor| x.cast(DType::I64).sum().item::<i64>() as f64 / (elements.max(1) as f64);
        let finite = low.is_finite();
        let there = exact.gt(0.0);
        let tiny = low.gt(0.0).logical_and(low.lt(self.smallest_normal));
        let huge = low.gt(self.largest / HEADROOM).logical_and(&finite);
        let (largest, smallest) = match elements {
            0 => (0.0, f64::INFINITY),
            _ => (exact.max().item(), there.select(&exact, f64::INFINITY).min().item::<f64>()),
        };
        LayerPrecision {
            name: name.to_string(),
            elements,
            flushed: share(low.eq(0.0).logical_and(&there)),
            subnormal: share(tiny),
            near_overflow: share(huge),
            not_finite: share(finite.logical_not()),
            largest,
            smallest: smallest.is_finite().then_some(smallest),
        }
    }

    /// A power of two, before it is tried.
    fn suggested(&self, layers: &[LayerPrecision]) -> f64 {
        let largest =
            layers.iter().map(|l| l.largest).filter(|x| x.is_finite()).fold(0.0, f64::max);
        let smallest = layers.iter().filter_map(|l| l.smallest).fold(f64::INFINITY, f64::min);
        if largest == 0.0 {
            return 1.0;
        }
        let needed = (self.smallest_normal / smallest).log2().ceil().max(0.0);
        let allowed = (self.largest / HEADROOM / largest).log2().floor();
        // A scale is an f32.
        2f64.powf(needed.min(allowed).clamp(-126.0, 127.0))
    }
}

impl fmt::Display for PrecisionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PrecisionReport { dtype, scale, suggested, layers } = self;
        let width = layers.iter().map(|l| l.name.len()).max().unwrap_or(0).max("parameter".len());
        writeln!(f, "gradients in {dtype}, of the loss times {scale}")?;
        writeln!(
            f,
            "{:width$}  {:>9}  {:>8}  {:>9}  {:>8}  {:>10}  {:>9}  {:>9}",
            "parameter",
            "elements",
            "flushed",
            "subnormal",
            "near max",
            "not finite",
            "largest",
            "smallest"
        )?;
        let percent = |share: f64| format!("{:.1}%", 100.0 * share);
        for l in layers {
            let smallest = l.smallest.map_or("–".to_string(), |x| format!("{x:.2e}"));
            writeln!(
                f,
                "{:width$}  {:>9}  {:>8}  {:>9}  {:>8}  {:>10}  {:>9}  {smallest:>9}",
                l.name,
                l.elements,
                percent(l.flushed),
                percent(l.subnormal),
                percent(l.near_overflow),
                percent(l.not_finite),
                format!("{:.2e}", l.largest),
            )?;
        }
        match suggested {
            Some(scale) => write!(f, "suggested scale: {scale} (2^{})", scale.log2()),
            None => f.write_str(
                "no scale helps: gradients are not finite with a very small one either; `detect_overflow` finds the op",
            ),
        }
    }
}
