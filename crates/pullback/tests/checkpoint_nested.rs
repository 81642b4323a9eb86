//! Derivatives inside, around and on both sides of a checkpointed function: those of the plain one.

use pullback::{
    Backward, DType, Key, Pack, Packed, Result, SavedValue, Tensor, catch, checkpoint, cond, grad,
    hessian, jacfwd, jacrev, jit, jvp, scan, stack, value_and_grad, vjp, vmap, with_packing,
};
use std::sync::Arc;

/// A function of three numbers that gives three.
type Map = Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>;

fn map(f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> Map {
    Arc::new(f)
}

/// What makes another such function of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Grad,
    GradOf,
    /// A gradient in which the argument is a constant.
    Around,
    /// The same in forward mode.
    Across,
    Vjp,
    Jvp,
    Jacrev,
    Jacfwd,
    Hessian,
    Vmap,
    Scan,
    Cond,
    Jit,
    Checkpoint,
}

const FORMS: [Form; 14] = [
    Form::Grad,
    Form::GradOf,
    Form::Around,
    Form::Across,
    Form::Vjp,
    Form::Jvp,
    Form::Jacrev,
    Form::Jacfwd,
    Form::Hessian,
    Form::Vmap,
    Form::Scan,
    Form::Cond,
    Form::Jit,
    Form::Checkpoint,
];

impl Form {
    fn of(self, f: Map) -> Map {
        match self {
            Form::Grad => map(move |x| grad(|p: &Tensor| f(p).square().sum())(x) * 0.25),
            Form::GradOf => map(move |x| {
                // A copy of its own, as the argument may be a constant here and tracked there.
                let p = x.detach().deep_clone().requires_grad();
                let y = (f(&p) * x).sum();
                let found = Backward::of(&y).create_graph().wrt(&[&p]);
                found.map_or_else(|e| pullback::raise(e), |mut g| g.remove(0))
            }),
            Form::Around => map(move |x| {
                let near = Tensor::from([0.9, 1.1, -0.8]);
                grad(|p: &Tensor| (f(&(p * x)) * x).sum())(&near) * 0.5
            }),
            Form::Across => map(move |x| {
                let (near, along) = (Tensor::from([0.9, 1.1, -0.8]), Tensor::from([1.0, 0.5, 0.2]));
                jvp(|p: &Tensor| f(&(p * x)) * x, &near, &along).1
            }),
            Form::Vjp => map(move |x| {
                let (y, pullback) = vjp(|p: &Tensor| f(p), x);
                pullback(&x.cos()) + y
            }),
            Form::Jvp => map(move |x| {
                let (y, dy) = jvp(|p: &Tensor| f(p), x, &x.sin());
                y * dy
            }),
            Form::Jacrev => map(move |x| jacrev(|p: &Tensor| f(p))(x).matmul(x) * 0.5),
            Form::Jacfwd => map(move |x| jacfwd(|p: &Tensor| f(p))(x).matmul(x) * 0.5),
            Form::Hessian => {
                map(move |x| hessian(|p: &Tensor| (f(p) * p).sum())(x).matmul(x) * 0.25)
            }
            Form::Vmap => map(move |x| {
                let both = vmap(|p: &Tensor| f(p), 0, 0)(&stack(&[x, &(x * 0.5)], 0));
                both.sum_over(0) * 0.5
            }),
            Form::Scan => map(move |x| {
                let iteration = |s: &Tensor, row: &Tensor| (f(s) * 0.5 + row.sin(), s.sum());
                let (s, sums) = scan(iteration, x, &stack(&[x, &(x * 0.3)], 0));
                s + sums.sum() * 0.1
            }),
            Form::Cond => map(move |x| {
                let test = x.sum().gt(0.0);
                cond(&test, |x: &Tensor| f(x) * 0.5, |x: &Tensor| f(x).sin(), x)
            }),
            Form::Jit => map(move |x| jit(|x: &Tensor| f(x)).of(x)),
            Form::Checkpoint => map(move |x| {
                checkpoint(
                    {
                        let f = f.clone();
                        move |x: &Tensor| f(x)
                    },
                    x,
                )
            }),
        }
    }
}

fn bases() -> Vec<(&'static str, Map)> {
    vec![
        ("exp", map(|x| x.exp() * x * 0.3)),
        ("powi", map(|x| x.powi(3) * 0.5 + x.sin())),
        ("mixed", map(|x| (x.cumsum(0) * x).tanh() + x.narrow(0, 1, 2).sum() * x)),
    ]
}

fn point() -> Tensor {
    Tensor::from([0.7, -0.4, 0.3])
}

/// The value and the gradient of a function, by all the ways from outside.
fn seen(f: &Map) -> Vec<f64> {
    let x = point();
    let (y, g) = value_and_grad(|x: &Tensor| f(x).square().sum())(&x);
    let (_, t) = jvp(|x: &Tensor| f(x), &x, &Tensor::from([0.5, 1.0, -0.5]));
    let mut all = y.to_vec::<f64>();
    all.extend(g.to_vec::<f64>());
    all.extend(t.to_vec::<f64>());
    let leaf = point().requires_grad();
    f(&leaf).sum().backward().unwrap_or_else(|e| pullback::raise(e));
    all.extend(leaf.grad().unwrap_or_else(|| leaf.zeros_like()).to_vec::<f64>());
    all
}

/// Whether the function has the same value and derivatives checkpointed in the midst of these forms
/// as plain.
fn compare(outer: &[Form], inner: &[Form], base: &(&str, Map)) -> Option<String> {
    let build = |checkpointed: bool| {
        let f = inner.iter().rev().fold(base.1.clone(), |f, form| form.of(f));
        let f = if checkpointed { Form::Checkpoint.of(f) } else { f };
        outer.iter().rev().fold(f, |f, form| form.of(f))
    };
    let plain = match catch(|| seen(&build(false))) {
        Ok(plain) => plain,
        // What is refused anyway says nothing here.
        Err(_) => return None,
    };
    let name = format!("{outer:?} of checkpoint of {inner:?} of {}", base.0);
    let wrong = match catch(|| seen(&build(true))) {
        Err(error) => Some(error.to_string()),
        Ok(again) => {
            let size = plain.iter().fold(1.0f64, |m, x| m.max(x.abs()));
            let near =
                |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * size || (a.is_nan() && b.is_nan());
            (!plain.iter().zip(&again).all(near))
                .then(|| format!("{again:?}\n instead of {plain:?}"))
        }
    };
    Some(wrong.map_or(String::new(), |wrong| format!("{name}: {wrong}\n")))
}

/// Compares all of these; at least this many must not be refused plain.
fn compare_all(cases: impl Iterator<Item = (Vec<Form>, Vec<Form>, usize)>, at_least: usize) {
    let bases = bases();
    let (mut compared, mut wrong) = (0, Vec::new());
    for (outer, inner, base) in cases {
        if let Some(text) = compare(&outer, &inner, &bases[base % bases.len()]) {
            compared += 1;
            wrong.extend(Some(text).filter(|t| !t.is_empty()));
        }
    }
    let shown: String = wrong.iter().take(12).cloned().collect();
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{shown}", wrong.len());
    assert!(compared >= at_least, "only {compared} were compared");
}

#[test]
fn one_form_inside() {
    let cases = FORMS.iter().flat_map(|&i| (0..3).map(move |b| (vec![], vec![i], b)));
    compare_all(cases, 40);
}

#[test]
fn one_form_outside() {
    let cases = FORMS.iter().flat_map(|&o| (0..3).map(move |b| (vec![o], vec![], b)));
    compare_all(cases, 33);
}

#[test]
fn one_form_on_either_side() {
    let pairs = FORMS.iter().flat_map(|&o| FORMS.iter().map(move |&i| (o, i)));
    compare_all(pairs.enumerate().map(|(k, (o, i))| (vec![o], vec![i], k)), 120);
}

#[test]
fn two_forms_inside() {
    let pairs = FORMS.iter().flat_map(|&o| FORMS.iter().map(move |&i| (o, i)));
    compare_all(pairs.enumerate().map(|(k, (a, b))| (vec![], vec![a, b], k)), 120);
}

#[test]
fn two_forms_outside() {
    let pairs = FORMS.iter().flat_map(|&o| FORMS.iter().map(move |&i| (o, i)));
    compare_all(pairs.enumerate().map(|(k, (a, b))| (vec![a, b], vec![], k)), 120);
}

/// Up to two forms on either side, by chance.
#[test]
fn forms_by_chance() {
    let count = std::env::var("CHECKPOINT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let numbers = Key::new(7).randint([count, 6], 0, 1 << 20).to_vec::<i64>();
    let cases = numbers.chunks(6).map(|n| {
        let pick = |n: i64| FORMS[n as usize % FORMS.len()];
        let (outer, inner) = (n[0] as usize % 3, n[1] as usize % 3);
        let outer = [pick(n[2]), pick(n[3])][..outer].to_vec();
        (outer, [pick(n[4]), pick(n[5])][..inner].to_vec(), n[0] as usize / 3)
    });
    compare_all(cases, count / 2);
}

fn near(a: &Tensor, b: &Tensor) {
    let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * (1.0 + b.abs());
    assert!(a.len() == b.len() && a.iter().zip(&b).all(same), "{a:?} instead of {b:?}");
}

/// All second derivatives of a function, inside a checkpoint that is itself differentiated.
#[test]
fn a_hessian_inside() {
    let f = |x: &Tensor| jacrev(grad(|p: &Tensor| (p.exp() * p).sum()))(x);
    let x = Tensor::from([0.5, -0.25]);
    let plain = grad(|x: &Tensor| f(x).square().sum())(&x);
    assert!(plain.to_vec::<f64>().iter().all(|g| *g != 0.0));
    near(&grad(move |x: &Tensor| checkpoint(f, x).square().sum())(&x), &plain);
    let along = Tensor::from([1.0, 2.0]);
    near(&jvp(move |x: &Tensor| checkpoint(f, x), &x, &along).1, &jvp(f, &x, &along).1);
    let each = |x: &Tensor| vmap(grad(grad(|p: &Tensor| p.exp() * p)), 0, 0)(x);
    let plain = grad(|x: &Tensor| each(x).square().sum())(&x);
    near(&grad(move |x: &Tensor| checkpoint(each, x).square().sum())(&x), &plain);
}

/// The second run happens after the `jvp` around the first has returned.
#[test]
fn reverse_over_forward() {
    let f = |x: &Tensor| (x.sin() * x).exp();
    let x = Tensor::from([0.5, -0.25]);
    let along = |x: &Tensor| x.cos();
    let plain = grad(|x: &Tensor| jvp(f, x, &along(x)).1.square().sum())(&x);
    let again = |x: &Tensor| jvp(|x: &Tensor| checkpoint(f, x), x, &along(x)).1.square().sum();
    near(&grad(again)(&x), &plain);
    // The same for what the function captured.
    let plain = grad(|x: &Tensor| jvp(|p: &Tensor| (p * x).sin(), x, &along(x)).1.square().sum());
    let again = |x: &Tensor| {
        let inner = |p: &Tensor| {
            let p = p.clone();
            checkpoint(move |x: &Tensor| (&p * x).sin(), x)
        };
        jvp(inner, x, &along(x)).1.square().sum()
    };
    near(&grad(again)(&x), &plain(&x));
}

/// The transform whose argument a checkpointed function captured is over when the function runs
/// again.
#[test]
fn a_captured_argument_of_a_transform_that_is_over() {
    let f = |checkpointed: bool| {
        move |w: &Tensor| {
            let w = w.clone();
            let middle = move |x: &Tensor| {
                let (x, w) = (x.clone(), w.clone());
                let inner = move |p: &Tensor| {
                    let q = Tensor::from([0.3, 0.7]);
                    grad(|q: &Tensor| (q.exp() * &x).sin().sum())(&q) * p * &w
                };
                let p = Tensor::from([1.5, 2.0]);
                let y = if checkpointed { checkpoint(inner, &p) } else { inner(&p) };
                y.square().sum()
            };
            grad(middle)(&Tensor::from([0.2, 0.4])).square().sum()
        }
    };
    let w = Tensor::from([0.5, -0.25]);
    near(&grad(f(true))(&w), &grad(f(false))(&w));
}

#[test]
fn odd_powers_of_negative_numbers_in_a_loop() {
    let iteration = |checkpointed: bool| {
        move |s: &Tensor, x: &Tensor| {
            let f = |x: &Tensor| x.powi(3);
            let y = if checkpointed { checkpoint(f, s) } else { f(s) };
            (y * 0.5 + x, ())
        }
    };
    let loss = |checkpointed: bool| {
        move |x: &Tensor| {
            let rows = stack(&[x, &(x * 0.5)], 0);
            scan(iteration(checkpointed), x, &rows).0.square().sum()
        }
    };
    let x = Tensor::from([-0.7, 0.4]);
    let second = |c: bool| move |x: &Tensor| grad(|x: &Tensor| grad(loss(c))(x).sin().sum())(x);
    let plain = second(false)(&x);
    near(&second(true)(&x), &plain);
    near(&hessian(loss(true))(&x), &hessian(loss(false))(&x));
    near(&jit(second(true)).of(&x), &plain);
    near(&jit(hessian(loss(true))).of(&x), &hessian(loss(false))(&x));
    let all = stack(&[&x, &(&x * 0.3)], 0);
    near(&vmap(second(true), 0, 0)(&all), &vmap(second(false), 0, 0)(&all));
}

/// Keeps what is saved as it is, by way of an operation: any packer must do.
struct Doubled;
struct Half(Tensor);

impl Pack for Doubled {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        match value.tensor().dtype() == DType::F64 && !value.is_traced() {
            true => Ok(Some(Arc::new(Half(value.tensor() * 2.0)))),
            false => Ok(None),
        }
    }
}

impl Packed for Half {
    fn unpack(&self) -> Result<Tensor> {
        Ok(&self.0 * 0.5)
    }

    fn bytes(&self) -> usize {
        self.0.spec().bytes()
    }
}

/// What was packed and comes back inside a body has its history all the same.
#[test]
fn packed_values_that_come_back_inside_a_body() {
    let f = |x: &Tensor| (x.exp() * x).sin();
    let x = Tensor::from([0.5, -0.25]);
    let plain = grad(|x: &Tensor| jacrev(f)(x).square().sum())(&x);
    let packed = |x: &Tensor| with_packing(Arc::new(Doubled), || f(x));
    near(&grad(|x: &Tensor| jacrev(packed)(x).square().sum())(&x), &plain);
    let along = Tensor::from([1.0, 2.0]);
    near(&jvp(jacrev(packed), &x, &along).1, &jvp(jacrev(f), &x, &along).1);
}
