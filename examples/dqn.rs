//! Deep Q-learning on a pole that is balanced on a cart: a replay buffer, a target network, and
//! `stop_gradient`.
//!
//! `cargo run --release --example dqn`
//!
//! The environment is built in: push a cart left or right so that the pole on it stays up; every
//! step gives a reward of 1, and an episode ends when the pole leans too far, the cart leaves the
//! track, or after 200 steps. Sixteen carts are driven at once, so that one forward pass chooses
//! sixteen actions.

use pullback::{Key, Reduction, Result, Tensor, jit, manual_seed, no_grad};
use pullback_nn::losses::{Loss, MseLoss};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, Scheduler};
use pullback_nn::{Layer, Linear, Module, Relu};

const CARTS: usize = 16;
const BATCH: usize = 128;
const DISCOUNT: f64 = 0.98;
const LONGEST: usize = 200;

/// Place, speed, angle and angular speed, and how many steps the episode has.
#[derive(Clone, Copy, Default)]
struct Cart {
    state: [f32; 4],
    steps: usize,
}

impl Cart {
    /// A new episode, nearly upright.
    fn new(random: &mut impl FnMut() -> f32) -> Cart {
        Cart { state: [(); 4].map(|()| 0.1 * random() - 0.05), steps: 0 }
    }

    /// Pushes to the right or to the left for 20 ms. Gives whether the pole fell.
    fn push(&mut self, right: bool) -> bool {
        let [x, v, angle, spin] = self.state;
        let (sin, cos, force) = (angle.sin(), angle.cos(), if right { 10.0 } else { -10.0 });
        // A cart of 1 kg and a pole of 0.1 kg and 1 m: Barto, Sutton and Anderson's equations.
        let pushed = (force + 0.05 * spin * spin * sin) / 1.1;
        let spin_up = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
        let speed_up = pushed - 0.05 * spin_up * cos / 1.1;
        let dt = 0.02;
        self.state = [x + dt * v, v + dt * speed_up, angle + dt * spin, spin + dt * spin_up];
        self.steps += 1;
        self.state[0].abs() > 2.4 || self.state[2].abs() > 0.21
    }
}

/// The estimated value of each action.
type Network = (Linear, Relu, Linear, Relu, Linear);

fn network() -> Network {
    (Linear::new(4, 64), Relu, Linear::new(64, 64), Relu, Linear::new(64, 2))
}

/// The better action for each cart.
fn best(network: &Network, carts: &[Cart]) -> Vec<i64> {
    let states: Vec<f32> = carts.iter().flat_map(|cart| cart.state).collect();
    no_grad(|| network.forward(&Tensor::from_vec(states, [carts.len(), 4]))).argmax(1).to_vec()
}

/// What happened once: state, action, reward for staying up, next state.
type Transition = ([f32; 4], i64, f32, [f32; 4]);

/// A batch of transitions: states, actions, whether it went on, next states.
fn gather(memory: &[Transition], chosen: &[usize]) -> (Tensor, Tensor, Tensor, Tensor) {
    let each = || chosen.iter().map(|&i| &memory[i]);
    let states: Vec<f32> = each().flat_map(|transition| transition.0).collect();
    let actions: Vec<i64> = each().map(|transition| transition.1).collect();
    let went_on: Vec<f32> = each().map(|transition| transition.2).collect();
    let next: Vec<f32> = each().flat_map(|transition| transition.3).collect();
    let n = chosen.len();
    let columns = |values: Vec<f32>| Tensor::from_vec(values, [n, 4]);
    (columns(states), Tensor::from(actions), Tensor::from(went_on), columns(next))
}

/// What a run gives: how many steps the pole stays up, on average over 16 episodes; 200 at most.
pub struct Figures {
    /// Before learning.
    pub before: f64,
    /// After it.
    pub after: f64,
}

/// Learns to balance.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let mut random = uniform_numbers();
    let online = network();
    let target = online.deep_copy();
    let opt = Adam { lr: 1e-3, ..Adam::default() }.over(online.parameters())?;
    let criterion = MseLoss::new(Reduction::Mean);

    let learn = jit(|(state, action, went_on, next): &(Tensor, Tensor, Tensor, Tensor)| {
        opt.zero_grad();
        let value = online.forward(state).gather(1, &action.unsqueeze(1)).squeeze_axis(1);
        // Rewards are scaled so that an endless episode has the value 1, near what networks start
        // with. Double Q-learning: the online network chooses, the target network judges. The
        // target is a constant to the gradient: without `stop_gradient` the target would be trained
        // towards the prediction as well.
        let choice = online.forward(next).argmax(1).unsqueeze(1);
        let later = target.forward(next).gather(1, &choice).squeeze_axis(1);
        let aim = (went_on * later * DISCOUNT + (1.0 - DISCOUNT)).stop_gradient();
        let loss = criterion.forward(&value, &aim);
        loss.backward()?;
        opt.step()?;
        // The target network follows slowly. It is a copy of the other, so their tensors come in
        // the same order.
        let pairs = target.parameters().into_iter().zip(online.parameters());
        no_grad(|| pairs.for_each(|(slow, fast)| drop(slow.copy_(slow.lerp(&fast, 0.01)))));
        Ok(loss)
    });

    let before = balanced(&online, &mut random);
    let mut carts: Vec<Cart> = (0..CARTS).map(|_| Cart::new(&mut random)).collect();
    let mut memory: Vec<Transition> = Vec::new();
    let rounds = if quick { 4000 } else { 10_000 };
    let mut schedule = Scheduler::new(&opt, CosineAnnealingLr { t_max: rounds, eta_min: 0.0 });
    for round in 0..rounds {
        // Explore much at first, little later.
        let explore = (1.0 - 2.0 * round as f32 / rounds as f32).max(0.05);
        let greedy = best(&online, &carts);
        for (cart, greedy) in carts.iter_mut().zip(greedy) {
            let action = if random() < explore { i64::from(random() < 0.5) } else { greedy };
            let before = cart.state;
            let fell = cart.push(action == 1);
            memory.push((before, action, if fell { 0.0 } else { 1.0 }, cart.state));
            if fell || cart.steps == LONGEST {
                *cart = Cart::new(&mut random);
            }
        }
        if memory.len() >= 1000 {
            for _ in 0..4 {
                let place = |_| (random() * memory.len() as f32) as usize % memory.len();
                let chosen: Vec<usize> = (0..BATCH).map(place).collect();
                learn.call(&gather(&memory, &chosen))?;
            }
        }
        schedule.step();
    }
    Ok(Figures { before, after: balanced(&online, &mut random) })
}

/// Numbers from 0 to 1, drawn a block at a time: an environment takes one after the other.
fn uniform_numbers() -> impl FnMut() -> f32 {
    let (mut blocks, mut numbers) = (0, Vec::new());
    move || {
        if numbers.is_empty() {
            blocks += 1;
            numbers = Key::new(blocks).uniform([4096], pullback::DType::F32, 0.0, 1.0).to_vec();
        }
        numbers.pop().unwrap_or_default()
    }
}

/// How long the pole stays up when the better action is always taken.
fn balanced(network: &Network, random: &mut impl FnMut() -> f32) -> f64 {
    let mut carts: Vec<Cart> = (0..CARTS).map(|_| Cart::new(random)).collect();
    let mut total = 0;
    for _ in 0..LONGEST {
        let actions = best(network, &carts);
        let mut next = Vec::new();
        for (mut cart, action) in carts.into_iter().zip(actions) {
            total += 1;
            if !cart.push(action == 1) {
                next.push(cart);
            }
        }
        carts = next;
        if carts.is_empty() {
            break;
        }
    }
    f64::from(total) / CARTS as f64
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { before, after } = run(false)?;
    println!(
        "the pole stays up for {before:.0} steps before learning, {after:.0} after ({LONGEST} at most)"
    );
    Ok(())
}
