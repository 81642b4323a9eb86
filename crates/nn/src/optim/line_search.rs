//! A line search for the strong Wolfe conditions.
//!
//! Along a descent direction, it finds a point where the loss has fallen enough (by c₁ of what the
//! first slope promised) and the slope has become flat enough (at most c₂ of the first). First
//! longer and longer steps are tried until two of them have such a point between them; then the
//! interval between the two is narrowed by cubic interpolation. It is the search that
//! `torch.optim.LBFGS` does, with its constants.

use pullback::{Result, Tensor};

/// What the loss should fall by, as a part of what the slope promises.
const FALL: f64 = 1e-4;
/// How steep it may still be, as a part of the first slope.
const FLAT: f64 = 0.9;

/// The loss, its gradient and its slope so far along the direction.
#[derive(Clone, Debug)]
pub(super) struct SearchPoint {
    pub far: f64,
    pub loss: f64,
    pub grad: Tensor,
    pub slope: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WolfeSearch {
    /// Intervals in which no parameter changes by more are not narrowed.
    pub tolerance: f64,
    /// How many points are evaluated after the first.
    pub most: usize,
    /// The largest element of the direction.
    pub size: f64,
}

impl WolfeSearch {
    /// The point that was found, beginning with one at distance `far`, and how many were evaluated.
    pub(super) fn run(
        &self,
        start: SearchPoint,
        far: f64,
        evaluate: &mut dyn FnMut(f64) -> Result<SearchPoint>,
    ) -> Result<(SearchPoint, usize)> {
        let fell = |p: &SearchPoint| p.loss <= start.loss + FALL * p.far * start.slope;
        let flat = |p: &SearchPoint| p.slope.abs() <= -FLAT * start.slope;
        let mut now = evaluate(far)?;
        let mut last = start.clone();
        let mut tries = 0;

        // Longer and longer steps, until an interval contains a good point.
        let mut between = loop {
            if tries >= self.most {
                break [start.clone(), now];
            }
            if !fell(&now) || (tries > 1 && now.loss >= last.loss) {
                break [last, now];
            }
            if flat(&now) {
                return Ok((now, tries + 1));
            }
            if now.slope >= 0.0 {
                break [last, now];
            }
            let bounds = (now.far + 0.01 * (now.far - last.far), now.far * 10.0);
            let far = lowest(&last, &now, bounds);
            last = std::mem::replace(&mut now, evaluate(far)?);
            tries += 1;
        };

        // Narrower intervals, until the point is found.
        let mut stuck = false;
        let mut low = usize::from(between[0].loss > between[1].loss);
        while tries < self.most {
            let (near, end) = ordered(between[0].far, between[1].far);
            if (end - near) * self.size < self.tolerance {
                break;
            }
            let mut far = lowest(&between[0], &between[1], (near, end));
            // Too close to an end twice in a row, or beyond it: a tenth of the way inwards.
            let margin = 0.1 * (end - near);
            if (end - far).min(far - near) < margin {
                if stuck || far >= end || far <= near {
                    far = if (far - end).abs() < (far - near).abs() {
                        end - margin
                    } else {
                        near + margin
                    };
                    stuck = false;
                } else {
                    stuck = true;
                }
            } else {
                stuck = false;
            }
            let now = evaluate(far)?;
            tries += 1;
            if !fell(&now) || now.loss >= between[low].loss {
                between[1 - low] = now;
                low = usize::from(between[0].loss > between[1].loss);
                continue;
            }
            let found = flat(&now);
            if !found && now.slope * (between[1 - low].far - between[low].far) >= 0.0 {
                between[1 - low] = between[low].clone();
            }
            between[low] = now;
            if found {
                break;
            }
        }
        let [a, b] = between;
        Ok((if low == 0 { a } else { b }, tries + 1))
    }
}

fn ordered(a: f64, b: f64) -> (f64, f64) {
    if a <= b { (a, b) } else { (b, a) }
}

/// Where the cubic through two points with their slopes is lowest, within bounds; their middle
/// where it has no lowest point.
fn lowest(a: &SearchPoint, b: &SearchPoint, (least, most): (f64, f64)) -> f64 {
    let mean = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.far - b.far);
    let square = mean * mean - a.slope * b.slope;
    if square.is_nan() || square < 0.0 {
        return (least + most) / 2.0;
    }
    let root = square.sqrt();
    let (near, end) = if a.far <= b.far { (a, b) } else { (b, a) };
    let part = (end.slope + root - mean) / (end.slope - near.slope + 2.0 * root);
    (end.far - (end.far - near.far) * part).max(least).min(most)
}
