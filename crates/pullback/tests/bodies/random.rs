//! Random bodies with writes in place, through views and through nestings of transforms, beside
//! twins that write nothing: equal, or refused.

use pullback::{Result, Tensor, catch, cond, grad, jit, jvp, no_grad, scan, stack, vmap};
use std::rc::Rc;

const N: usize = 4;
const PROGRAMS: u64 = 400;

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A part of a vector of `N`.
#[derive(Clone, Copy, Debug)]
enum Part {
    Whole,
    Front,
    Back,
    Flipped,
    Square,
    Row,
}

impl Part {
    fn of(self, y: &Tensor) -> Tensor {
        match self {
            Part::Whole => y.clone(),
            Part::Front => y.narrow(0, 0, 2),
            Part::Back => y.narrow(0, 1, 3),
            Part::Flipped => y.flip([0]),
            Part::Square => y.reshape([2, 2]).t(),
            Part::Row => y.reshape([2, 2]).select_at(0, 1),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
    Copy,
    Exp,
    Tanh,
    Sigmoid,
    Relu,
    Sqrt,
    Neg,
    PadFill,
}

impl Write {
    fn in_place(self, v: &Tensor, o: &Tensor) {
        let _ = match self {
            Write::Add => v.add_(o),
            Write::Sub => v.sub_(o),
            Write::Mul => v.mul_(o),
            Write::Div => v.div_(o.square() + 1.0),
            Write::Maximum => v.maximum_(o),
            Write::Minimum => v.minimum_(o),
            Write::Copy => v.copy_(o),
            Write::Exp => v.tanh_().exp_(),
            Write::Tanh => v.tanh_(),
            Write::Sigmoid => v.sigmoid_(),
            Write::Relu => v.relu_(),
            Write::Sqrt => v.sigmoid_().sqrt_(),
            Write::Neg => v.neg_(),
            Write::PadFill => v.fill_(0.25),
        };
    }

    fn apart(self, v: &Tensor, o: &Tensor) -> Tensor {
        match self {
            Write::Add => v + o,
            Write::Sub => v - o,
            Write::Mul => v * o,
            Write::Div => v / (o.square() + 1.0),
            Write::Maximum => v.maximum(o),
            Write::Minimum => v.minimum(o),
            Write::Copy => v * 0.0 + o,
            Write::Exp => v.tanh().exp(),
            Write::Tanh => v.tanh(),
            Write::Sigmoid => v.sigmoid(),
            Write::Relu => v.relu(),
            Write::Sqrt => v.sigmoid().sqrt(),
            Write::Neg => -v,
            Write::PadFill => v * 0.0 + 0.25,
        }
    }
}

/// What is written with.
#[derive(Clone, Copy, Debug)]
enum With {
    Argument,
    Sine,
    Constant,
    /// The value itself.
    Itself,
    /// What was computed of it before the last write.
    Earlier,
    /// The value, held inside `no_grad`.
    Held,
    /// What was cut off the value before all writes, which shares its memory.
    Shadow,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    part: Part,
    write: Write,
    with: With,
    /// Whether the view is taken before the value is computed with once more.
    early: bool,
}

/// How a part that is taken before all writes is looked at after them.
#[derive(Clone, Copy, Debug)]
enum Kept {
    View,
    Detached,
    InNoGrad,
}

#[derive(Clone, Debug)]
struct Body {
    steps: Vec<Step>,
    kept: (Part, Kept),
}

impl Body {
    fn drawn(draw: &mut Draw) -> Body {
        use Part::{Back, Flipped, Front, Row, Square, Whole};
        use With::{Argument, Constant, Earlier, Held, Itself, Shadow, Sine};
        let writes = [
            Write::Add,
            Write::Sub,
            Write::Mul,
            Write::Div,
            Write::Maximum,
            Write::Minimum,
            Write::Copy,
            Write::Exp,
            Write::Tanh,
            Write::Sigmoid,
            Write::Relu,
            Write::Sqrt,
            Write::Neg,
            Write::PadFill,
        ];
        let mut step = || Step {
            part: draw.of(&[Whole, Whole, Whole, Front, Back, Flipped, Square, Row]),
            write: draw.of(&writes),
            with: draw.of(&[Argument, Sine, Constant, Itself, Earlier, Held, Shadow]),
            early: draw.below(2) == 0,
        };
        let n = 1 + step().part as usize % 3;
        let steps = (0..n).map(|_| step()).collect();
        let part = draw.of(&[Front, Back, Flipped, Square, Row]);
        Body { steps, kept: (part, draw.of(&[Kept::View, Kept::Detached, Kept::InNoGrad])) }
    }

    /// The body on a vector, written in place or not.
    fn run(&self, x: &Tensor, in_place: bool) -> Tensor {
        let weights = Tensor::from([0.7, -1.3, 0.4, 1.9]);
        let mut y = x * 1.0;
        let mut earlier = x.cos();
        let (part, how) = self.kept;
        let look = |y: &Tensor| match how {
            Kept::View => part.of(y),
            Kept::Detached => part.of(&y.detach()),
            Kept::InNoGrad => no_grad(|| part.of(y)),
        };
        let (kept, shadow) = (look(&y), y.detach());
        for Step { part, write, with, early } in &self.steps {
            let view = part.of(&y);
            let seen = if *early { y.sin() } else { earlier.clone() };
            let with = match with {
                With::Argument => part.of(x),
                With::Sine => part.of(&x.sin()),
                With::Constant => part.of(&weights),
                With::Itself => part.of(&y),
                With::Earlier => part.of(&earlier),
                With::Held if in_place => no_grad(|| part.of(&y.square())),
                With::Shadow if in_place => part.of(&shadow),
                With::Shadow => part.of(&y.detach()),
                With::Held => part.of(&y.square().stop_gradient()),
            };
            match (in_place, part) {
                (true, _) => write.in_place(&view, &with),
                (false, Part::Whole) => y = write.apart(&y, &with),
                (false, part) => y = y.put(|y| part.of(y), &write.apart(&view, &with)),
            }
            earlier = seen;
        }
        let kept = if in_place { kept } else { look(&y) };
        ((&y * &weights).sin() + &earlier * 0.3 + &y * x).sum() + (kept.square() * 0.2).sum()
    }
}

type Function = Rc<dyn Fn(&Tensor) -> Tensor>;

#[derive(Clone, Copy, Debug)]
enum Around {
    Grad,
    Jvp,
    Vmap,
    Scan,
    Cond,
    Jit,
}

impl Around {
    /// From one number of a vector to another such function.
    fn of(self, f: Function) -> Function {
        let direction = || Tensor::from([0.9, -0.4, 1.1, 0.3]);
        let rows = |x: &Tensor| stack(&[x, &(x * 0.5 + 0.1)], 0);
        match self {
            Around::Grad => Rc::new(move |x| (grad(|x: &Tensor| f(x))(x) * direction()).sum()),
            Around::Jvp => Rc::new(move |x| jvp(|x: &Tensor| f(x), x, &direction()).1),
            Around::Vmap => Rc::new(move |x| vmap(|x: &Tensor| f(x), 0, 0)(&rows(x)).sum()),
            Around::Scan => Rc::new(move |x| {
                let iteration = |s: &Tensor, row: &Tensor| (s * 0.5 + f(&(row + s * 0.1)), ());
                scan(iteration, &Tensor::from(0.2), &rows(x)).0
            }),
            Around::Cond => {
                Rc::new(move |x| cond(&x.sum().gt(0.3), |x| f(x), |x| f(&(x * 0.7)), x))
            }
            Around::Jit => Rc::new(move |x| jit(|x: &Tensor| f(x)).of(x)),
        }
    }
}

fn value(body: &Body, around: &[Around], in_place: bool, x: &Tensor) -> Result<f64> {
    let body = body.clone();
    let inner: Function = Rc::new(move |x| body.run(x, in_place));
    let f = around.iter().fold(inner, |f, a| a.of(f));
    catch(|| f(x).item::<f64>())
}

#[test]
fn writes_in_place_are_right_or_refused() {
    use Around::{Cond, Grad, Jit, Jvp, Scan, Vmap};
    let (mut equal, mut refused, mut wrong) = (0, 0, Vec::new());
    for seed in 0..PROGRAMS {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        draw.below(1);
        let body = Body::drawn(&mut draw);
        let depth = 2 + draw.below(2);
        let around: Vec<Around> =
            (0..depth).map(|_| draw.of(&[Grad, Grad, Jvp, Vmap, Scan, Cond, Jit])).collect();
        let x = Tensor::from(std::array::from_fn::<f64, N, _>(|_| {
            draw.below(2000) as f64 / 1000.0 - 0.9
        }));
        let wanted = value(&body, &around, false, &x)
            .unwrap_or_else(|e| panic!("{seed} {body:?} {around:?}: {e}"));
        match value(&body, &around, true, &x) {
            Ok(found)
                if found == wanted || (found - wanted).abs() <= 1e-9 * (1.0 + wanted.abs()) =>
            {
                equal += 1
            }
            Ok(found) if found.is_nan() && wanted.is_nan() => equal += 1,
            Ok(found) => {
                wrong.push(format!("{seed}: {found} instead of {wanted}, {body:?} in {around:?}"))
            }
            Err(error) => {
                let text = error.to_string();
                let known = ["overwritten", "in place"].iter().any(|s| text.contains(s));
                assert!(known, "{seed}: {text}, {body:?} in {around:?}");
                refused += 1;
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {PROGRAMS} wrong:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
    assert!(equal >= 3 * PROGRAMS / 5, "{equal} right, {refused} refused");
}
