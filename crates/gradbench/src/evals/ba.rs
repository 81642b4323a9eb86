//! `ba`, bundle adjustment: how far what cameras see is from where it was seen, and the sparse
//! Jacobian of that.
//!
//! All is written for one observation, of a point by a camera, and `vmap` makes it that of all. Two
//! errors depend on fifteen numbers, so reverse mode takes two passes where forward mode would take
//! fifteen.

use super::Module;
use crate::job::{Job, read, vector};
use pullback::{Tensor, Tree, cat, grad, jit, stack, vmap};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const MODULE: Module = Module {
    name: "ba",
    functions: &[
        ("objective", |input| {
            let input: BaInput = read(input)?;
            let scene = scene(&input, &input.pairs()?);
            let f = jit(|scene: &Scene| {
                let errors = vmap(|o: &Observation| stack(&o.errors().each_ref(), 0), 0, 0);
                (errors(&scene.observations()), 1.0 - scene.weights.square())
            });
            Ok(Job::compiled(f, scene, show_errors))
        }),
        ("jacobian", |input| {
            let (input, f): (BaInput, _) = (read(input)?, jit(jacobian));
            let pairs = input.pairs()?;
            let scene = scene(&input, &pairs);
            let finish = move |values| Sparse::new(input.n, input.m, &pairs, values);
            Ok(Job::finished(f, scene, finish, Sparse::show))
        }),
    ],
};

#[derive(Deserialize)]
struct BaInput {
    n: usize,
    m: usize,
    p: usize,
    cam: [f64; CAMERA],
    x: [f64; 3],
    w: f64,
    feat: [f64; 2],
}

/// The numbers of a camera: rotation (3), centre (3), focal length, principal point (2), radial
/// distortion (2).
const CAMERA: usize = 11;
/// The numbers that an observation depends on: a camera, a point and a weight.
const WIDTH: usize = CAMERA + 3 + 1;

impl BaInput {
    /// Which camera sees which point, for each observation: both in turn.
    fn pairs(&self) -> Result<Vec<[usize; 2]>, String> {
        let &BaInput { n, m, p, .. } = self;
        for (name, count) in [("n", n), ("m", m), ("p", p)] {
            if count == 0 {
                return Err(format!("{name} is 0: there is nothing to observe"));
            }
        }
        let all = [n, m, p].iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        let places = all.and_then(|all| all.checked_mul(2 * WIDTH + 1));
        if places.is_none_or(|places| places > i32::MAX as usize) {
            return Err(format!(
                "{n} cameras, {m} points and {p} observations are more than 32-bit indices can count"
            ));
        }
        Ok((0..p).map(|i| [i % n, i % m]).collect())
    }
}

#[derive(Tree)]
struct Scene {
    cameras: Tensor,
    points: Tensor,
    weights: Tensor,
    features: Tensor,
    /// The camera and the point of each observation.
    by: Tensor,
    of: Tensor,
}

fn scene(input: &BaInput, pairs: &[[usize; 2]]) -> Scene {
    let all = |one: &[f64], count: usize| vector(one).expand([count, one.len()]).contiguous();
    let p = pairs.len();
    let [by, of] = [0, 1].map(|k| {
        Tensor::from_vec(pairs.iter().map(|pair| pair[k] as i64).collect::<Vec<_>>(), [p])
    });
    let (cameras, points) = (all(&input.cam, input.n), all(&input.x, input.m));
    let (weights, features) = (Tensor::full([p], input.w), all(&input.feat, p));
    Scene { cameras, points, weights, features, by, of }
}

/// What an observation depends on, and where the point was seen.
#[derive(Tree)]
struct Observation {
    camera: [Tensor; CAMERA],
    point: [Tensor; 3],
    weight: Tensor,
    seen_at: [Tensor; 2],
}

impl Scene {
    fn observations(&self) -> Observation {
        let columns = |x: &Tensor| x.unbind(1);
        let cameras = columns(&self.cameras.index_select(0, &self.by));
        let points = columns(&self.points.index_select(0, &self.of));
        let features = columns(&self.features);
        Observation {
            camera: std::array::from_fn(|i| cameras[i].clone()),
            point: std::array::from_fn(|i| points[i].clone()),
            weight: self.weights.clone(),
            seen_at: std::array::from_fn(|i| features[i].clone()),
        }
    }
}

impl Observation {
    /// The weighted distance from where the camera sees the point to where it was seen.
    fn errors(&self) -> [Tensor; 2] {
        let [r0, r1, r2, c0, c1, c2, focal, u0, v0, k1, k2] = &self.camera;
        let [x, y, z] = &self.point;
        let [x, y, z] = rotate([r0, r1, r2], [&(x - c0), &(y - c1), &(z - c2)]);
        let (x, y) = (x / &z, y / &z);
        let r = x.square() + y.square();
        let distorted = 1.0 + k1 * &r + k2 * &r * &r;
        let [u, v] = &self.seen_at;
        let error = |x: Tensor, centre: &Tensor, at: &Tensor| {
            &self.weight * (x * &distorted * focal + centre - at)
        };
        [error(x, u0, u), error(y, v0, v)]
    }
}

/// The point turned about an axis by its length as the angle (Rodrigues).
fn rotate(axis: [&Tensor; 3], x: [&Tensor; 3]) -> [Tensor; 3] {
    let dot = |a: [&Tensor; 3], b: [&Tensor; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let cross = |a: [&Tensor; 3], b: [&Tensor; 3], i: usize| {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        a[j] * b[k] - a[k] * b[j]
    };
    // Without a turn the angle has no derivative: there the limit is taken, and another angle goes
    // into what is not taken.
    let square = dot(axis, axis);
    let turns = square.ne(0.0);
    let angle = turns.select(&square, 1.0).sqrt();
    let (sin, cos) = (angle.sin(), angle.cos());
    let unit = axis.map(|a| a / &angle);
    let unit = unit.each_ref();
    let along = dot(unit, x) * (1.0 - &cos);
    std::array::from_fn(|i| {
        let turned = x[i] * &cos + cross(unit, x, i) * &sin + unit[i] * &along;
        turns.select(turned, x[i] + cross(axis, x, i))
    })
}

/// The elements of the Jacobian that are not zero: 2 rows of each observation, then the derivative
/// of each weight's error.
fn jacobian(scene: &Scene) -> Tensor {
    let block = vmap(
        |o: &Observation| {
            let rows = [0, 1].map(|i| grad(|o: &Observation| o.errors()[i].clone())(o));
            let slopes: Vec<&Tensor> = rows
                .iter()
                .flat_map(|o| o.camera.iter().chain(&o.point).chain([&o.weight]))
                .collect();
            stack(&slopes, 0)
        },
        0,
        0,
    );
    let weights = grad(|w: &Tensor| (1.0 - w.square()).sum())(&scene.weights);
    cat(&[&block(&scene.observations()).reshape([-1]), &weights], 0)
}

/// A sparse matrix by rows: the elements of row i are those from `rows[i]` to `rows[i + 1]`.
struct Sparse {
    rows: Vec<i32>,
    columns: Vec<i32>,
    values: Tensor,
}

impl Sparse {
    fn new(n: usize, m: usize, pairs: &[[usize; 2]], values: Tensor) -> Sparse {
        let p = pairs.len();
        let (points, weights) = (CAMERA * n, CAMERA * n + 3 * m);
        let mut rows = Vec::with_capacity(3 * p + 1);
        let mut columns = Vec::with_capacity((2 * WIDTH + 1) * p);
        for (i, [camera, point]) in pairs.iter().enumerate() {
            let (camera, point) = (CAMERA * camera, points + 3 * point);
            for row in 0..2 {
                rows.push(((2 * i + row) * WIDTH) as i32);
                columns.extend((camera..camera + CAMERA).map(|c| c as i32));
                columns.extend((point..point + 3).map(|c| c as i32));
                columns.push((weights + i) as i32);
            }
        }
        rows.extend((0..=p).map(|i| (2 * WIDTH * p + i) as i32));
        columns.extend((0..p).map(|i| (weights + i) as i32));
        Sparse { rows, columns, values }
    }

    /// The first observation and the last number stand for the matrix.
    fn show(&self) -> Value {
        let values = self.values.to_vec::<f64>();
        json!({ "rows": ends(&self.rows), "cols": ends(&self.columns), "vals": ends(&values) })
    }
}

fn ends<T: Copy>(all: &[T]) -> Vec<T> {
    all.iter().take(2 * WIDTH).chain(all.last()).copied().collect()
}

fn show_errors((errors, weights): &(Tensor, Tensor)) -> Value {
    json!({
        "reproj_error": { "elements": errors.at(0).to_vec::<f64>(), "repeated": errors.shape()[0] },
        "w_err": { "element": weights.at(0).item::<f64>(), "repeated": weights.len() },
    })
}
