//! `ba` and `ht` against the formulas once more, in plain loops, and their Jacobians against
//! central differences.

mod common;

use common::{Tool, assert_close, numbers};
use serde_json::{Value, json};

/// Central differences with steps of 1e-6 are good to about 1e-9 of the function: rounding, 1e-16 /
/// 1e-6, and curvature, 1e-12.
const DIFFERENCES: f64 = 3e-8;
/// A few dozen operations, each rounded, in another order.
const ROUNDING: f64 = 1e-13;

/// The derivative of `f` by each number, at each of its results: a row for each result.
fn jacobian(f: impl Fn(&[f64]) -> Vec<f64>, x: &[f64]) -> Vec<Vec<f64>> {
    let columns: Vec<Vec<f64>> = (0..x.len())
        .map(|i| {
            let step = 1e-6 * x[i].abs().max(1.0);
            let moved = |by: f64| {
                let mut x = x.to_vec();
                x[i] += by;
                f(&x)
            };
            let (up, down) = (moved(step), moved(-step));
            up.iter().zip(&down).map(|(a, b)| (a - b) / (2.0 * step)).collect()
        })
        .collect();
    (0..columns[0].len()).map(|row| columns.iter().map(|c| c[row]).collect()).collect()
}

// Bundle adjustment

/// A camera (11), a point (3), a weight.
const OBSERVATION: [f64; 15] =
    [0.3, -0.2, 0.5, 0.1, 0.4, -0.3, 1.7, 0.2, -0.1, 0.05, -0.02, 0.9, -0.6, 2.5, 0.8];
const SEEN_AT: [f64; 2] = [0.35, -0.45];

fn bundle(x: &[f64], [n, m, p]: [usize; 3]) -> Value {
    json!({ "n": n, "m": m, "p": p, "cam": x[..11], "x": x[11..14], "w": x[14], "feat": SEEN_AT })
}

fn reprojection(x: &[f64]) -> Vec<f64> {
    let (cam, point, w) = (&x[..11], &x[11..14], x[14]);
    let o = [point[0] - cam[3], point[1] - cam[4], point[2] - cam[5]];
    let angle = (cam[0] * cam[0] + cam[1] * cam[1] + cam[2] * cam[2]).sqrt();
    let mut turned = o;
    if angle != 0.0 {
        let k = [cam[0] / angle, cam[1] / angle, cam[2] / angle];
        let along = k[0] * o[0] + k[1] * o[1] + k[2] * o[2];
        for i in 0..3 {
            let (j, l) = ((i + 1) % 3, (i + 2) % 3);
            turned[i] = o[i] * angle.cos()
                + (k[j] * o[l] - k[l] * o[j]) * angle.sin()
                + k[i] * along * (1.0 - angle.cos());
        }
    }
    let (a, b) = (turned[0] / turned[2], turned[1] / turned[2]);
    let r = a * a + b * b;
    let l = 1.0 + cam[9] * r + cam[10] * r * r;
    vec![w * (a * l * cam[6] + cam[7] - SEEN_AT[0]), w * (b * l * cam[6] + cam[8] - SEEN_AT[1])]
}

/// The example, and the same without a rotation, where the formula divides by the angle.
fn observations() -> [[f64; 15]; 2] {
    let mut still = OBSERVATION;
    still[..3].fill(0.0);
    [OBSERVATION, still]
}

#[test]
fn ba_objective() {
    let mut tool = Tool::start();
    for x in observations() {
        let y = tool.evaluate("ba", "objective", bundle(&x, [3, 4, 12]));
        assert_close(&y["reproj_error"]["elements"], &reprojection(&x), ROUNDING);
        assert_eq!(y["reproj_error"]["repeated"], 12);
        assert_close(&y["w_err"]["element"], &[1.0 - 0.8 * 0.8], ROUNDING);
        assert_eq!(y["w_err"]["repeated"], 12);
    }
}

#[test]
fn ba_jacobian() {
    let mut tool = Tool::start();
    let (n, m, p) = (3, 4, 12);
    for x in observations() {
        let y = tool.evaluate("ba", "jacobian", bundle(&x, [n, m, p]));
        let mut values = jacobian(reprojection, &x).concat();
        values.push(-2.0 * 0.8);
        assert_close(&y["vals"], &values, DIFFERENCES);
        // Observation 0 is of point 0 by camera 0.
        let row: Vec<usize> = (0..11).chain(11 * n..11 * n + 3).chain([11 * n + 3 * m]).collect();
        let last = 11 * n + 3 * m + p - 1;
        let columns: Vec<usize> = row.iter().chain(&row).copied().chain([last]).collect();
        assert_eq!(y["cols"], json!(columns));
        // 24 rows of 15, then 12 of one: 30 of these 37 places, and the end.
        let rows: Vec<usize> =
            (0..24).map(|i| 15 * i).chain((0..6).map(|i| 360 + i)).chain([372]).collect();
        assert_eq!(y["rows"], json!(rows));
    }
}

/// Where a sum is a difference of large numbers, as at the first size of the suite, nothing is lost
/// that the loops keep.
#[test]
fn ba_with_large_numbers() {
    let mut tool = Tool::start();
    let x = [
        0.0157415, -0.0127909, -0.0044008, -0.034, -0.107, 1.12, 399.75, 3.2, -1.5, -3.18e-7,
        5.88e-13, -0.612, 0.571, -1.847, 1.3,
    ];
    let y = tool.evaluate("ba", "jacobian", bundle(&x, [1, 1, 10]));
    let mut values = jacobian(reprojection, &x).concat();
    values.push(-2.6);
    assert_close(&y["vals"], &values, DIFFERENCES);
}

#[test]
fn ba_refuses_what_it_cannot_use() {
    let mut tool = Tool::start();
    for function in ["objective", "jacobian"] {
        let mut refused = |input: Value, part: &str| {
            let sentence = tool.refusal("ba", function, input);
            assert!(sentence.contains(part), "{sentence}");
        };
        let good = bundle(&OBSERVATION, [3, 4, 12]);
        let with = |key: &str, value: Value| {
            let mut input = good.clone();
            input[key] = value;
            input
        };
        refused(with("n", json!(0)), "n is 0");
        refused(with("m", json!(0)), "m is 0");
        refused(with("p", json!(0)), "p is 0");
        refused(with("p", json!(-1)), "does not fit");
        refused(with("p", json!(1u64 << 40)), "more than 32-bit indices can count");
        refused(with("n", json!(u64::MAX)), "more than 32-bit indices can count");
        refused(with("cam", json!([1.0, 2.0])), "11");
        refused(with("x", json!([1.0, 2.0, 3.0, 4.0])), "does not fit");
        refused(with("feat", json!("here")), "does not fit");
        refused(with("w", Value::Null), "does not fit");
        refused(json!({ "n": 1 }), "missing field");
        tool.evaluate("ba", function, good);
    }
}

// Hand tracking

type Matrix = [[f64; 4]; 4];

struct Hand {
    parents: Vec<i64>,
    relatives: Vec<Matrix>,
    inverses: Vec<Matrix>,
    positions: Vec<[f64; 4]>,
    weights: Vec<Vec<f64>>,
    triangles: Vec<[usize; 3]>,
    mirrored: bool,
    correspondences: Vec<usize>,
    points: Vec<[f64; 3]>,
}

/// Numbers between -1 and 1 that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }

    /// A matrix near the identity with the last row of an affine map.
    fn matrix(&mut self) -> Matrix {
        let mut m = [[0.0; 4]; 4];
        for (i, row) in m.iter_mut().enumerate() {
            for x in row.iter_mut().take(if i < 3 { 4 } else { 0 }) {
                *x = 0.3 * self.next();
            }
            row[i] += 1.0;
        }
        m
    }
}

const VERTICES: usize = 9;

/// An invented hand of 22 bones, whose parents are not only the bones before.
fn hand(triangles: bool, mirrored: bool) -> (Hand, Vec<f64>, Vec<[f64; 2]>) {
    let mut numbers = Numbers(7);
    let parents = (0..22).map(|i| if i == 0 || i == 13 { -1 } else { (i - 1) / 2 }).collect();
    let relatives = (0..22).map(|_| numbers.matrix()).collect();
    let inverses = (0..22).map(|_| numbers.matrix()).collect();
    let positions =
        (0..VERTICES).map(|_| [numbers.next(), numbers.next(), numbers.next(), 1.0]).collect();
    let weights = (0..VERTICES).map(|_| (0..22).map(|_| numbers.next()).collect()).collect();
    let hand = Hand {
        parents,
        relatives,
        inverses,
        positions,
        weights,
        triangles: vec![[0, 3, 5], [8, 1, 2], [4, 4, 7]],
        mirrored,
        correspondences: if triangles { vec![2, 0, 1, 0] } else { vec![8, 0, 3, 3] },
        points: (0..4).map(|_| [numbers.next(), numbers.next(), numbers.next()]).collect(),
    };
    let theta = (0..26).map(|_| numbers.next()).collect();
    let us = (0..if triangles { 4 } else { 0 }).map(|_| [numbers.next(), numbers.next()]).collect();
    (hand, theta, us)
}

fn times(a: &Matrix, b: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..4).map(|k| a[i][k] * b[k][j]).sum()))
}

impl Hand {
    fn input(&self, theta: &[f64], us: &[[f64; 2]]) -> Value {
        let names: Vec<String> = (0..self.parents.len()).map(|i| format!("bone {i}")).collect();
        json!({
            "theta": theta,
            "us": us,
            "data": {
                "correspondences": self.correspondences,
                "points": self.points,
                "model": {
                    "bone_count": names.len(),
                    "bone_names": names,
                    "parents": self.parents,
                    "base_relatives": self.relatives,
                    "inverse_base_absolutes": self.inverses,
                    "base_positions": self.positions,
                    "weights": self.weights,
                    "triangles": self.triangles,
                    "is_mirrored": self.mirrored,
                },
            },
        })
    }

    /// The turn of a bone: about z after about x.
    fn bend(theta: &[f64], bone: usize) -> Matrix {
        let (x, z) = match (bone, (bone + 3) % 4) {
            (0 | 21, _) | (_, 0) => (0.0, 0.0),
            (_, k) => {
                let finger = &theta[6 + 4 * ((bone - 1) / 4)..][..4];
                if k == 1 { (finger[0], finger[1]) } else { (finger[k], 0.0) }
            }
        };
        let (sx, cx, sz, cz) = (x.sin(), x.cos(), z.sin(), z.cos());
        let about_x =
            [[1.0, 0.0, 0.0, 0.0], [0.0, cx, -sx, 0.0], [0.0, sx, cx, 0.0], [0.0, 0.0, 0.0, 1.0]];
        let about_z =
            [[cz, -sz, 0.0, 0.0], [sz, cz, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        times(&about_z, &about_x)
    }

    fn distances(&self, theta: &[f64], us: &[[f64; 2]]) -> Vec<f64> {
        let mut absolutes: Vec<Matrix> = Vec::new();
        for (i, &parent) in self.parents.iter().enumerate() {
            let relative = times(&self.relatives[i], &Hand::bend(theta, i));
            absolutes.push(match parent {
                -1 => relative,
                parent => times(&absolutes[parent as usize], &relative),
            });
        }
        let mut skin = vec![[0.0; 3]; self.positions.len()];
        for (v, place) in skin.iter_mut().enumerate() {
            for (b, absolute) in absolutes.iter().enumerate() {
                let transform = times(absolute, &self.inverses[b]);
                for i in 0..3 {
                    let moved: f64 = (0..4).map(|k| transform[i][k] * self.positions[v][k]).sum();
                    place[i] += self.weights[v][b] * moved;
                }
            }
            if self.mirrored {
                place[0] = -place[0];
            }
            *place = globally(theta, *place);
        }
        let mut distances = Vec::new();
        for (i, point) in self.points.iter().enumerate() {
            for k in 0..3 {
                let at = self.correspondences[i];
                let place = match us.get(i) {
                    None => skin[at][k],
                    Some([u, v]) => {
                        let [a, b, c] = self.triangles[at].map(|corner| skin[corner][k]);
                        u * a + v * b + (1.0 - u - v) * c
                    }
                };
                distances.push(point[k] - place);
            }
        }
        distances
    }
}

/// Turned about theta's first three numbers by their length, then moved by the next three.
fn globally(theta: &[f64], x: [f64; 3]) -> [f64; 3] {
    let angle = theta[..3].iter().map(|t| t * t).sum::<f64>().sqrt();
    let mut turned = x;
    if angle >= 1e-4 {
        let k = [theta[0] / angle, theta[1] / angle, theta[2] / angle];
        let along = k[0] * x[0] + k[1] * x[1] + k[2] * x[2];
        for i in 0..3 {
            let (j, l) = ((i + 1) % 3, (i + 2) % 3);
            turned[i] = x[i] * angle.cos()
                + (k[j] * x[l] - k[l] * x[j]) * angle.sin()
                + k[i] * along * (1.0 - angle.cos());
        }
    }
    [turned[0] + theta[3], turned[1] + theta[4], turned[2] + theta[5]]
}

/// Poses with and without triangles, a mirror, and a global rotation.
fn poses() -> Vec<(Hand, Vec<f64>, Vec<[f64; 2]>)> {
    let mut all = vec![hand(false, false), hand(true, false), hand(false, true), hand(true, true)];
    let mut still = hand(true, false);
    still.1[..3].fill(0.0);
    all.push(still);
    all
}

#[test]
fn ht_objective() {
    let mut tool = Tool::start();
    for (hand, theta, us) in poses() {
        let y = tool.evaluate("ht", "objective", hand.input(&theta, &us));
        assert_close(&y, &hand.distances(&theta, &us), ROUNDING);
    }
}

#[test]
fn ht_jacobian() {
    let mut tool = Tool::start();
    for (hand, theta, us) in poses() {
        let y = tool.evaluate("ht", "jacobian", hand.input(&theta, &us));
        let mut expected = jacobian(|theta| hand.distances(theta, &us), &theta);
        if !us.is_empty() {
            // The first two columns: all the points move in their triangles at once.
            let moved = |by: &[f64]| {
                let us: Vec<[f64; 2]> = us.iter().map(|u| [u[0] + by[0], u[1] + by[1]]).collect();
                hand.distances(&theta, &us)
            };
            for (row, more) in expected.iter_mut().zip(jacobian(moved, &[0.0, 0.0])) {
                row.splice(0..0, more);
            }
        }
        assert_eq!(y.as_array().map(Vec::len), Some(12));
        assert_eq!(y[0].as_array().map(Vec::len), Some(if us.is_empty() { 26 } else { 28 }));
        assert_close(&y, &expected.concat(), DIFFERENCES);
    }
}

/// A hand that is not turned has no derivative by its rotation: the formula takes no rotation for
/// one below 1e-4.
#[test]
fn ht_without_a_turn() {
    let mut tool = Tool::start();
    let (hand, mut theta, us) = hand(false, false);
    for turn in [0.0, 1e-5] {
        theta[..3].fill(turn);
        let y = tool.evaluate("ht", "jacobian", hand.input(&theta, &us));
        for row in numbers(&y).chunks(26) {
            assert_eq!(row[..3], [0.0; 3]);
        }
    }
}

#[test]
fn ht_refuses_what_it_cannot_use() {
    let mut tool = Tool::start();
    let (hand, theta, us) = hand(true, false);
    for function in ["objective", "jacobian"] {
        let good = hand.input(&theta, &us);
        let mut refused = |at: &str, value: Value, part: &str| {
            let mut input = good.clone();
            *input.pointer_mut(at).expect("a place in the input") = value;
            let sentence = tool.refusal("ht", function, input);
            assert!(sentence.contains(part), "{sentence}");
        };
        refused("/theta", json!([1.0, 2.0]), "theta has 2 numbers, and a pose has 26");
        refused("/theta/3", json!("x"), "does not fit");
        refused("/us/0", json!([0.5]), "does not fit");
        refused("/us", json!([[0.5, 0.5]]), "us has 1 entries, and there are 4 points");
        refused("/data/points", json!([]), "no points");
        refused("/data/points/1", json!([1.0, 2.0]), "does not fit");
        refused("/data/points", json!([[1.0, 2.0, 3.0]]), "correspondences has 4 entries");
        refused(
            "/data/correspondences/2",
            json!(3),
            "correspondence 2 is triangle 3, and there are 3",
        );
        refused("/data/correspondences/2", json!(-1), "does not fit");
        let model = "/data/model/";
        let mut refused = |at: &str, value: Value, part: &str| {
            refused(&format!("{model}{at}"), value, part);
        };
        refused("bone_names", json!(["wrist"]), "a hand of 1 bones");
        refused("parents", json!([-1]), "parents has 1 entries, and there are 22 bones");
        refused("parents/5", json!(5), "the parent of bone 5 is 5");
        refused("parents/5", json!(-2), "the parent of bone 5 is -2");
        refused("base_relatives", json!([]), "base_relatives has 0 entries");
        refused("inverse_base_absolutes/1", json!([[1.0]]), "does not fit");
        refused("base_positions", json!([]), "no base_positions");
        refused("weights/4", json!([1.0]), "vertex 4 has 1 weights, and there are 22 bones");
        refused("weights", json!([]), "weights has 0 entries, and there are 9 vertices");
        refused(
            "triangles/1",
            json!([0, 1, 9]),
            "triangle 1 is [0, 1, 9], and there are 9 vertices",
        );
        refused("is_mirrored", json!(1), "does not fit");
        tool.evaluate("ht", function, good);
    }
    let (hand, theta, _) = self::hand(false, false);
    let mut input = hand.input(&theta, &[]);
    input["data"]["correspondences"][0] = json!(9);
    let sentence = tool.refusal("ht", "objective", input);
    assert!(sentence.contains("correspondence 0 is vertex 9, and there are 9"), "{sentence}");
}
